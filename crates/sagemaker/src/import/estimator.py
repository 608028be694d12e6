# Reads a Python program, or a notebook, on standard input and prints the calls that make and fit an estimator of SageMaker's SDK, as
# JSON. The program is never run: its statements are followed in their order as far as literals go, into functions that it calls
# itself. What depends on anything else stays code. Where a condition is not known both sides are followed, and what they change is not
# known afterwards.
import ast
import json
import operator
import os.path
import string
import sys

ESTIMATORS = ("PyTorch", "TensorFlow", "Estimator")
# Those that are named where none of the above is found.
OTHERS = ("HuggingFace", "SKLearn", "XGBoost", "MXNet", "Chainer", "RLEstimator", "AlgorithmEstimator", "ModelTrainer")
TUNER = "HyperparameterTuner"
OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
# They change none of their arguments. Nor do those whose names begin with a capital letter, as classes do.
READERS = ("print", "len", "str", "repr", "dumps", "pprint", "format", "sorted", "info", "debug", "warning", "fit")
# Names may name others, and functions may be called often, so that few lines stand for work of any size: this many steps, parts and
# characters are read.
BUDGET = 1_000_000
# Calls within calls.
DEEPEST = 20


class TooLarge(Exception):
    pass


class Return(Exception):
    pass


class Code:
    """What is not known, as the program says it."""

    def __init__(self, text):
        self.text = text


class Box:
    """A list or a table, which may be changed under all its names; it was made within so many conditions."""

    def __init__(self, items, depth):
        self.items, self.depth = items, depth
        self.code = None


class Made:
    """What a call gave that is not known."""

    def __init__(self, node, name, args, keywords, depth):
        self.node, self.name, self.args, self.keywords, self.depth = node, name, args, keywords, depth
        self.as_fitted = None


class Function:
    def __init__(self, node, owner=None):
        self.node, self.owner = node, owner
        self.is_called = False


class Class:
    def __init__(self, node):
        self.node = node
        self.instance = None


class Instance:
    def __init__(self, of, depth):
        self.of, self.attributes, self.depth = of, {}, depth


def last_name(function):
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_scalar(value):
    return value is None or isinstance(value, (bool, int, float, str))


def is_known(value):
    return is_scalar(value) or (isinstance(value, Box) and value.code is None)


class Reader:
    def __init__(self, text):
        self.left = BUDGET
        self.tree = ast.parse(text)
        self.globals = {"__name__": "__main__"}
        self.scopes = [self.globals]
        # The names that `import .. as ..` gave, and what they name.
        self.aliases = {}
        # The lines of conditions that are not known, around what is being followed.
        self.conditions = []
        # Functions that are being followed.
        self.within = []
        self.functions, self.classes = [], []
        self.estimators, self.tuners, self.others = [], [], []
        self.fits, self.hyperparameters = [], []
        self.seen = set()

    def spend(self, amount):
        self.left -= amount
        if self.left < 0:
            raise TooLarge

    def code(self, node):
        # As much as there is to unparse.
        self.spend(sum(1 for _ in ast.walk(node)))
        return " ".join(ast.unparse(node).split())[:200]

    def unknown(self, node):
        return Code(self.code(node))

    # Names

    def find(self, name):
        for scope in (self.scopes[-1], self.globals):
            if name in scope:
                return scope[name]
        return None

    def has(self, name):
        return name in self.scopes[-1] or name in self.globals

    def box(self, items):
        return Box(items, len(self.conditions))

    def is_doubtful(self, of):
        """Whether what is done to something now is done under a condition that it was not made under."""
        return len(self.conditions) > of.depth

    def doubtful(self, node):
        """What has this value under a condition that is not known."""
        return Code("%s (line %d decides whether)" % (self.code(node), self.conditions[-1]))

    def assign(self, target, value, node):
        if isinstance(target, ast.Name):
            self.scopes[-1][target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = value.items if isinstance(value, Box) and value.code is None else None
            if not isinstance(parts, list) or len(parts) != len(target.elts):
                parts = [self.unknown(node) for _ in target.elts]
            for part, one in zip(target.elts, parts):
                self.assign(part, one, node)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, self.unknown(node), node)
        elif isinstance(target, ast.Attribute):
            of = self.value(target.value)
            if isinstance(of, Instance):
                is_new = isinstance(value, Made) and target.attr not in of.attributes
                of.attributes[target.attr] = self.doubtful(node) if self.is_doubtful(of) and not is_new else value
            elif isinstance(of, Made) and of.as_fitted is None:
                # Such as estimator.max_run = 3600.
                of.keywords.append((target.attr, self.doubtful(node) if self.is_doubtful(of) else value))
        elif isinstance(target, ast.Subscript):
            of, key = self.value(target.value), self.value(target.slice)
            if isinstance(of, Box):
                self.put(of, key, value, node)

    def put(self, box, key, value, node):
        if self.is_doubtful(box):
            value = self.doubtful(node)
        is_place = isinstance(box.items, list) and isinstance(key, int) and -len(box.items) <= key < len(box.items)
        if is_place or (isinstance(box.items, dict) and isinstance(key, str)):
            box.items[key] = value
        else:
            box.code = self.code(node)

    def spoil(self, value, node, depth=0):
        """Lists and tables may have been changed by what is not known."""
        if isinstance(value, Box) and value.code is None and depth < DEEPEST:
            self.spend(1 + len(value.items))
            value.code = "%s (line %d may change it)" % (self.code(node), node.lineno)
            for part in value.items.values() if isinstance(value.items, dict) else value.items:
                self.spoil(part, node, depth + 1)

    # Statements

    def block(self, statements):
        for node in statements:
            self.statement(node)

    def perhaps(self, line, *branches):
        """Follows blocks of which a condition decides, each from the same names. Afterwards, what one of them has bound is not known,
        unless it is new and no literal: an estimator that is made in one of them is the one that is fitted later."""
        scope = self.scopes[-1]
        before, bound = dict(scope), {}
        for block in branches:
            scope.clear()
            scope.update(before)
            self.spend(len(before))
            self.conditions.append(line)
            try:
                self.block(block)
            except Return:
                pass
            finally:
                self.conditions.pop()
            bound.update((name, value) for name, value in scope.items() if name not in before or value is not before[name])
        scope.clear()
        scope.update(before)
        for name, value in bound.items():
            is_new = name not in before and not is_scalar(value) and not isinstance(value, Box)
            scope[name] = value if is_new else Code("%s (line %d decides what)" % (name, line))

    def statement(self, node):
        self.spend(1)
        if isinstance(node, ast.Assign):
            value = self.value(node.value)
            for target in node.targets:
                self.assign(target, value, node.value)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self.assign(node.target, self.value(node.value), node.value)
        elif isinstance(node, ast.AugAssign):
            self.augment(node)
        elif isinstance(node, ast.Expr):
            self.value(node.value)
        elif isinstance(node, ast.If):
            test = self.value(node.test)
            if is_known(test):
                truth = bool(test.items if isinstance(test, Box) else test)
                self.block(node.body if truth else node.orelse)
            else:
                self.perhaps(node.lineno, node.body, node.orelse)
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            if isinstance(node, ast.While):
                self.value(node.test)
            else:
                self.value(node.iter)
                self.assign(node.target, self.unknown(node.target), node.target)
            self.perhaps(node.lineno, node.body, node.orelse)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                value = self.value(item.context_expr)
                if item.optional_vars is not None:
                    self.assign(item.optional_vars, value if isinstance(value, Made) else Code("?"), item.context_expr)
            self.block(node.body)
        elif isinstance(node, ast.Try) or type(node).__name__ == "TryStar":
            self.block(node.body)
            self.perhaps(node.lineno, *[handler.body for handler in node.handlers])
            self.block(node.orelse)
            self.block(node.finalbody)
        elif type(node).__name__ == "Match":
            self.value(node.subject)
            self.perhaps(node.lineno, *[case.body for case in node.cases])
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function = Function(node)
            self.functions.append(function)
            self.scopes[-1][node.name] = function
        elif isinstance(node, ast.ClassDef):
            self.scopes[-1][node.name] = Class(node)
            self.classes.append(self.scopes[-1][node.name])
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                name = (alias.asname or alias.name).split(".")[0]
                self.aliases.pop(name, None)
                if alias.asname:
                    self.aliases[name] = alias.name.split(".")[-1]
                self.scopes[-1].pop(name, None)
        elif isinstance(node, ast.Delete):
            for target in node.targets:
                self.delete(target)
        elif isinstance(node, ast.Return):
            value = None if node.value is None else self.value(node.value)
            if self.within:
                frame = self.within[-1]
                is_sure = len(self.conditions) == frame["depth"] and frame["value"] is self
                is_first = frame["value"] is self and isinstance(value, (Made, Instance))
                frame["value"] = value if is_sure or is_first else self.doubtful_return(node)
            raise Return
        elif isinstance(node, ast.Global):
            for name in node.names:
                self.scopes[-1].pop(name, None)
                if self.scopes[-1] is not self.globals:
                    # What a function does to it is not followed.
                    self.globals[name] = Code(name)
        else:
            for part in ast.iter_child_nodes(node):
                if isinstance(part, ast.expr):
                    self.value(part)

    def doubtful_return(self, node):
        return Code("%s (of several values)" % self.code(node.value or node))

    def augment(self, node):
        value = self.value(node.value)
        target = node.target
        if isinstance(target, ast.Name):
            before = self.find(target.id)
            if isinstance(before, Box):
                return self.extend(before, value, node.value)
            after = self.operation(node, type(node.op), before, value) if self.has(target.id) else self.unknown(node)
            self.scopes[-1][target.id] = after
        elif isinstance(target, ast.Subscript):
            of, key = self.value(target.value), self.value(target.slice)
            if isinstance(of, Box):
                before = self.item(of, key, target)
                self.put(of, key, self.operation(node, type(node.op), before, value), node)

    def extend(self, box, value, node):
        """Adds a list to a list, or a table to a table, in place."""
        if not isinstance(value, Box) or value.code is not None or type(value.items) is not type(box.items):
            box.code = self.code(node)
        elif isinstance(box.items, dict):
            for key, one in list(value.items.items()):
                self.put(box, key, one, node)
        elif self.is_doubtful(box):
            box.code = self.code(node)
        else:
            box.items += value.items
        self.spend(len(box.items))

    def delete(self, target):
        if isinstance(target, ast.Name):
            self.scopes[-1].pop(target.id, None)
        elif isinstance(target, ast.Subscript):
            of, key = self.value(target.value), self.value(target.slice)
            if isinstance(of, Box):
                self.remove(of, key, target)

    def remove(self, box, key, node):
        if self.is_doubtful(box) or not isinstance(box.items, dict) or not isinstance(key, str):
            box.code = self.code(node)
        else:
            box.items.pop(key, None)

    # Expressions

    def value(self, node):
        self.spend(1)
        self.seen.add(id(node))
        if isinstance(node, ast.Constant):
            value = node.value
            if isinstance(value, str):
                self.spend(len(value))
                return value
            if isinstance(value, int) and abs(value) >= 2**63:
                return self.unknown(node)
            if isinstance(value, float) and value - value != 0:
                return self.unknown(node)
            return value if is_scalar(value) else self.unknown(node)
        if isinstance(node, ast.Name):
            return self.find(node.id) if self.has(node.id) else self.unknown(node)
        if isinstance(node, (ast.List, ast.Tuple)):
            parts = []
            for part in node.elts:
                if isinstance(part, ast.Starred):
                    more = self.value(part.value)
                    if not isinstance(more, Box) or more.code is not None or not isinstance(more.items, list):
                        return self.unknown(node)
                    parts += more.items
                else:
                    parts.append(self.value(part))
            return self.box(parts)
        if isinstance(node, ast.Dict):
            return self.table(node)
        if isinstance(node, ast.UnaryOp):
            value = self.value(node.operand)
            if isinstance(node.op, ast.USub) and is_number(value):
                return -value
            if isinstance(node.op, ast.Not) and is_scalar(value):
                return not value
            return self.unknown(node)
        if isinstance(node, ast.BinOp):
            return self.operation(node, type(node.op), self.value(node.left), self.value(node.right))
        if isinstance(node, ast.JoinedStr):
            return self.text(node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            left, right = self.value(node.left), self.value(node.comparators[0])
            if is_scalar(left) and is_scalar(right):
                return (left == right) == isinstance(node.ops[0], ast.Eq)
            return self.unknown(node)
        if isinstance(node, ast.IfExp):
            test = self.value(node.test)
            if is_scalar(test):
                return self.value(node.body if test else node.orelse)
        if isinstance(node, ast.Attribute):
            of = self.value(node.value)
            if isinstance(of, Instance):
                return of.attributes[node.attr] if node.attr in of.attributes else self.unknown(node)
            return self.unknown(node)
        if isinstance(node, ast.Subscript):
            of, key = self.value(node.value), self.value(node.slice)
            return self.item(of, key, node)
        if isinstance(node, ast.Await):
            return self.value(node.value)
        if isinstance(node, ast.NamedExpr):
            value = self.value(node.value)
            self.assign(node.target, value, node.value)
            return value
        if isinstance(node, ast.Call):
            return self.call(node)
        # Something else with calls in it, perhaps. They take place under conditions, if at all.
        self.conditions.append(node.lineno)
        for part in ast.walk(node):
            self.spend(1)
            if isinstance(part, ast.Call) and id(part) not in self.seen:
                self.value(part)
        self.conditions.pop()
        return self.unknown(node)

    def table(self, node):
        items = {}
        for key, value in zip(node.keys, node.values):
            one = self.value(value)
            if key is None:
                if not isinstance(one, Box) or one.code is not None or not isinstance(one.items, dict):
                    return self.unknown(node)
                items.update(one.items)
                self.spend(len(one.items))
                continue
            name = self.value(key)
            if not isinstance(name, str):
                return self.unknown(node)
            items[name] = one
        return self.box(items)

    def item(self, of, key, node):
        if isinstance(of, Box) and of.code is None:
            if isinstance(of.items, dict) and isinstance(key, str) and key in of.items:
                return of.items[key]
            if isinstance(of.items, list) and isinstance(key, int) and -len(of.items) <= key < len(of.items):
                return of.items[key]
        return self.unknown(node)

    def operation(self, node, operator, left, right):
        are_texts = isinstance(left, str) and isinstance(right, str) and operator is ast.Add
        if are_texts:
            self.spend(len(left) + len(right))
            return left + right
        if operator in OPERATIONS and is_number(left) and is_number(right):
            try:
                value = OPERATIONS[operator](left, right)
            except ArithmeticError:
                return self.unknown(node)
            if value - value == 0 and abs(value) < 2**63:
                return value
        boxes = [one.items for one in (left, right) if isinstance(one, Box) and one.code is None]
        if len(boxes) == 2 and type(boxes[0]) is type(boxes[1]):
            self.spend(len(boxes[0]) + len(boxes[1]))
            if operator is ast.Add and isinstance(boxes[0], list):
                return self.box(boxes[0] + boxes[1])
            if operator is ast.BitOr and isinstance(boxes[0], dict):
                return self.box({**boxes[0], **boxes[1]})
        return self.unknown(node)

    def text(self, node):
        parts = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                value = self.value(part.value)
                if part.conversion != -1 or part.format_spec is not None or not is_scalar(value):
                    return self.unknown(node)
            else:
                value = self.value(part)
            parts.append(str(value))
            self.spend(len(parts[-1]))
        return "".join(parts)

    # Calls

    def arguments(self, node):
        args, keywords = [], []
        for part in node.args:
            if isinstance(part, ast.Starred):
                more = self.value(part.value)
                if isinstance(more, Box) and more.code is None and isinstance(more.items, list):
                    args += more.items
                else:
                    args.append(self.unknown(part))
            else:
                args.append(self.value(part))
        for keyword in node.keywords:
            value = self.value(keyword.value)
            if keyword.arg is None and isinstance(value, Box) and value.code is None and isinstance(value.items, dict):
                keywords += list(value.items.items())
            else:
                keywords.append((keyword.arg or "**", value))
        self.spend(len(args) + len(keywords))
        return args, keywords

    def call(self, node):
        function = node.func
        name = last_name(function)
        if isinstance(function, ast.Name):
            name = self.aliases.get(name, name)
            own = self.find(function.id)
            if isinstance(own, Function):
                return self.follow(own, node)
            if isinstance(own, Class):
                return self.make(own, node)
            if own is None and name in ("str", "int", "float", "dict", "list", "tuple"):
                return self.built_in(name, node)
        if isinstance(function, ast.Attribute):
            of = self.value(function.value)
            if isinstance(of, Instance):
                method = self.methods(of).get(name)
                if method is not None:
                    return self.follow(method, node, of)
            if isinstance(of, Box):
                return self.of_box(of, name, node)
            if isinstance(of, str) and name == "format":
                return self.formatted(of, node)
            if isinstance(of, Made) and name in ("fit", "set_hyperparameters", "tune"):
                return self.of_made(of, name, node)
            if name == "join" and isinstance(of, Code) and of.text.split(".")[-1] == "path":
                parts, _ = self.arguments(node)
                if parts and all(isinstance(part, str) for part in parts):
                    return os.path.join(*parts)
                return self.unknown(node)
        else:
            self.value(function)
        args, keywords = self.arguments(node)
        if not name[:1].isupper() and name not in READERS:
            for value in args + [value for _, value in keywords]:
                self.spoil(value, node)
        made = Made(node, name, args, keywords, len(self.conditions))
        if name in ESTIMATORS:
            self.estimators.append(made)
        elif name == TUNER:
            self.tuners.append(made)
        elif name in OTHERS:
            self.others.append(made)
        return made

    def built_in(self, name, node):
        args, keywords = self.arguments(node)
        if name == "dict":
            start = args[0] if args else self.box({})
            if len(args) <= 1 and isinstance(start, Box) and start.code is None and isinstance(start.items, dict):
                items = {**start.items, **dict(keywords)}
                if "**" not in items:
                    return self.box(items)
        elif name in ("list", "tuple"):
            if len(args) == 1 and isinstance(args[0], Box) and args[0].code is None and isinstance(args[0].items, list):
                return self.box(list(args[0].items))
        elif len(args) == 1 and not keywords and is_scalar(args[0]):
            try:
                value = {"str": str, "int": int, "float": float}[name](args[0])
                if isinstance(value, str) or (value - value == 0 and abs(value) < 2**63):
                    return value
            except (ValueError, TypeError, OverflowError):
                pass
        return self.unknown(node)

    def formatted(self, text, node):
        args, keywords = self.arguments(node)
        values = args + [value for _, value in keywords]
        try:
            fields = [(name, spec, kind) for _, name, spec, kind in string.Formatter().parse(text) if name is not None]
            # A width would make a text of any length, and an attribute or item reads what is not a literal.
            is_plain = all(not spec and not kind and (not name or name.isalnum()) for name, spec, kind in fields)
            if is_plain and all(is_scalar(value) for value in values):
                self.spend(len(text) + len(fields) * sum(len(str(value)) for value in values))
                return text.format(*args, **dict(keywords))
        except (IndexError, KeyError, ValueError):
            pass
        return self.unknown(node)

    def of_box(self, box, method, node):
        args, keywords = self.arguments(node)
        is_table = isinstance(box.items, dict)
        if method in ("keys", "values", "items", "index", "count"):
            return self.unknown(node)
        if method == "copy":
            copy = self.box(dict(box.items) if is_table else list(box.items))
            copy.code = box.code
            return copy
        if method in ("get", "pop", "setdefault") and is_table and args and isinstance(args[0], str):
            usual = args[1] if len(args) > 1 else None
            # Where the table is not known, neither is this.
            found = self.unknown(node) if box.code is not None else box.items.get(args[0], usual)
            if method == "pop":
                self.remove(box, args[0], node)
            elif method == "setdefault" and box.code is None and args[0] not in box.items:
                self.put(box, args[0], usual, node)
            return found
        if method == "update" and is_table:
            if args:
                self.extend(box, args[0], node)
            for key, value in keywords:
                if key == "**":
                    box.code = self.code(node)
                else:
                    self.put(box, key, value, node)
            return None
        if method in ("append", "extend") and not is_table and len(args) == 1:
            more = args[0] if method == "extend" else self.box([args[0]])
            self.extend(box, more, node)
            return None
        box.code = self.code(node)
        return self.unknown(node)

    def of_made(self, made, method, node):
        args, keywords = self.arguments(node)
        call = Made(node, method, args, keywords, len(self.conditions))
        tuned = [part for part in made.args + [value for _, value in made.keywords] if isinstance(part, Made)]
        of = made if made in self.estimators else next((part for part in tuned if part in self.estimators), None)
        if of is None or (of is not made and made.name != TUNER):
            return call
        if method == "set_hyperparameters":
            if self.is_doubtful(of):
                call.keywords = [(one.arg or "**", self.doubtful(one.value)) for one in node.keywords]
            self.hyperparameters.append(self.encoded(call))
        else:
            if of.as_fitted is None:
                # It has what it was given as it is now.
                of.as_fitted = self.encoded(of)
            self.fits.append(self.encoded(call))
        return call

    def follow(self, function, node, instance=None):
        args, keywords = self.arguments(node)
        return self.run(function, args, keywords, instance, node)

    def run(self, function, args, keywords, instance, node):
        function.is_called = True
        if len(self.within) >= DEEPEST or any(frame["of"] is function for frame in self.within):
            return self.unknown(node)
        own, scope = function.node.args, {}
        names = [one.arg for one in own.posonlyargs + own.args]
        usual = dict(zip(reversed(names), reversed(own.defaults)))
        usual.update((one.arg, value) for one, value in zip(own.kwonlyargs, own.kw_defaults) if value is not None)
        for name in names + [one.arg for one in own.kwonlyargs]:
            scope[name] = self.value(usual[name]) if name in usual else Code(name)
        if instance is not None and names:
            scope[names.pop(0)] = instance
        scope.update(zip(names, args))
        scope.update((name, value) for name, value in keywords if name in scope)
        for one in (own.vararg, own.kwarg):
            if one is not None:
                scope[one.arg] = Code(one.arg)
        # `self` marks a function that has not returned yet.
        frame = {"of": function, "value": self, "depth": len(self.conditions)}
        self.within.append(frame)
        self.scopes.append(scope)
        try:
            self.block(function.node.body)
        except Return:
            pass
        finally:
            self.scopes.pop()
            self.within.pop()
        return None if frame["value"] is self else frame["value"]

    def methods(self, instance):
        found = {}
        for node in instance.of.node.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                known = next((one for one in self.functions if one.node is node), None)
                if known is None:
                    known = Function(node, instance.of)
                    self.functions.append(known)
                found[node.name] = known
        return found

    def make(self, of, node):
        args, keywords = self.arguments(node) if node is not None else ([], [])
        of.instance = instance = Instance(of, len(self.conditions))
        for part in of.node.body:
            if isinstance(part, ast.Assign):
                for target in part.targets:
                    if isinstance(target, ast.Name):
                        instance.attributes[target.id] = self.value(part.value)
        first = self.methods(instance).get("__init__")
        if first is not None:
            self.run(first, args, keywords, instance, node or first.node)
        return instance

    # What is printed

    def encoded(self, value, depth=0):
        self.spend(1)
        if is_scalar(value):
            self.spend(len(value) if isinstance(value, str) else 0)
            return {"value": value}
        if isinstance(value, Made) and depth < DEEPEST:
            return {
                "call": value.name,
                "line": value.node.lineno,
                "code": self.code(value.node),
                "args": [self.encoded(part, depth + 1) for part in value.args],
                "keywords": [[name, self.encoded(part, depth + 1)] for name, part in value.keywords],
            }
        if isinstance(value, Box) and value.code is None and depth < DEEPEST:
            if isinstance(value.items, dict):
                table = [[name, self.encoded(part, depth + 1)] for name, part in value.items.items()]
                if all("value" in part for _, part in table):
                    return {"value": {name: part["value"] for name, part in table}}
                return {"table": table}
            parts = [self.encoded(part, depth + 1) for part in value.items]
            if all("value" in part for part in parts):
                return {"value": [part["value"] for part in parts]}
            return {"list": parts}
        if isinstance(value, (Box, Code)):
            return {"code": (value.code if isinstance(value, Box) else value.text) or "[..]"}
        if isinstance(value, Made):
            return {"code": self.code(value.node)}
        return {"code": "%s of this program" % type(value).__name__.lower()}

    def found(self):
        self.follow_all()
        return {
            "estimators": [one.as_fitted or self.encoded(one) for one in self.estimators],
            "tuners": [self.encoded(one) for one in self.tuners],
            "others": [self.encoded(one) for one in self.others],
            "fits": self.fits,
            "hyperparameters": self.hyperparameters,
        }

    def follow_all(self):
        def matters(node):
            wanted = ESTIMATORS + OTHERS + (TUNER, "fit", "set_hyperparameters")
            calls = (part for part in ast.walk(node) if isinstance(part, ast.Call))
            return any(self.aliases.get(last_name(part.func), last_name(part.func)) in wanted for part in calls)

        try:
            self.block(self.tree.body)
        except Return:
            pass
        # Those that this program leaves to others to call, with arguments that are not known.
        for one in self.classes:
            if matters(one.node) and one.instance is None:
                self.make(one, None)
            if one.instance is not None:
                for method in self.methods(one.instance).values():
                    if not method.is_called and matters(method.node):
                        self.run(method, [], [], one.instance, method.node)
        for function in list(self.functions):
            if not function.is_called and function.owner is None and matters(function.node):
                self.run(function, [], [], None, function.node)


def program(text):
    """The program of a text, which may be a notebook."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        cells = json.loads(text)["cells"]
        sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError):
        return text
    lines = "\n".join(source for source in sources if not source.lstrip().startswith("%%")).splitlines()
    # What IPython does with the shell and itself; a line stays a line, so that numbers are those of all cells together.
    return "\n".join("pass" if line.lstrip()[:1] in ("!", "%") and line[:1] == line.lstrip()[:1] else line for line in lines)


try:
    result = Reader(program(sys.stdin.read())).found()
except SyntaxError as error:
    result = {"error": "line %s: %s" % (error.lineno, error.msg)}
except TooLarge:
    result = {"error": "its values are too large: more than %d steps, parts and characters" % BUDGET}
except (ValueError, RecursionError, MemoryError) as error:
    result = {"error": "%s" % (error or type(error).__name__)}
print(json.dumps(result))
