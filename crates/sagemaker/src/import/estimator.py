# Reads a Python program, or a notebook, on standard input and prints the calls that make and fit an estimator of SageMaker's SDK, as
# JSON. The program is never run: its statements are followed in their order as far as literals go, into functions that it calls
# itself. What depends on anything else stays code. Where a condition is not known both sides are followed, and what they change is not
# known afterwards. So is what may be changed in a way that is not followed: a value is right, or it is not known.
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
READERS = ("print", "isinstance", "hasattr", "len", "str", "repr", "dumps", "pprint", "format", "sorted", "info", "debug", "warning", "fit",
           "sagemaker")
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


class Several(Code):
    """Arguments of which not even the number is known."""


class Box:
    """A list or a table, which may be changed under all its names; it was made under these conditions."""

    def __init__(self, items, conditions):
        self.items, self.conditions = items, conditions
        self.code = None


class Made:
    """What a call gave that is not known."""

    def __init__(self, node, name, args, keywords, conditions):
        self.node, self.name, self.args, self.keywords, self.conditions = node, name, args, keywords, conditions
        self.as_fitted = None

    def values(self):
        return self.args + [value for _, value in self.keywords]


class Function:
    """A function with the scopes around it, from the inside, and what its parameters are if they are not given."""

    def __init__(self, node, scopes, usual, owner=None):
        self.node, self.scopes, self.usual, self.owner = node, scopes, usual, owner
        # Whether it was followed, and whether something else may call it.
        self.is_called = self.is_left = False
        # What a decorator makes of a function is not known, nor when a generator or a coroutine runs.
        self.is_plain = not node.decorator_list and isinstance(node, ast.FunctionDef) and not has_yield(node)


class Class:
    """Its bases are the classes of this program that it has methods and attributes of; `is_plain` says that there are no others, and
    nothing that changes how attributes are read and written."""

    def __init__(self, node, bases, is_plain):
        self.node, self.bases, self.is_plain = node, bases, is_plain
        self.attributes, self.methods = {}, {}
        self.instance = None

    def lines(self):
        """The class and those that it has methods and attributes of, the nearest first."""
        return [self] + (self.bases[0].lines() if self.bases else [])

    def method(self, name):
        return next((one.methods[name] for one in self.lines() if name in one.methods), None)


class Instance:
    def __init__(self, of, conditions):
        self.of, self.attributes, self.conditions = of, {}, conditions
        self.is_plain = all(one.is_plain for one in of.lines())


# They change what an attribute is, or how it is written.
HOOKS = ("__new__", "__getattribute__", "__getattr__", "__setattr__", "__delattr__", "__init_subclass__", "__class_getitem__")
# Their blocks end at a failure, which goes on.
MANAGERS = ("open", "TemporaryDirectory", "NamedTemporaryFile", "Pool", "ThreadPoolExecutor", "ProcessPoolExecutor")
# They reach every name of the program.
REACHING = ("globals", "locals", "exec")


def has_yield(function):
    parts = list(function.body)
    while parts:
        part = parts.pop()
        if isinstance(part, (ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            parts += ast.iter_child_nodes(part)
    return False


def leaves(statements):
    """Whether what comes after a block is not reached from it."""
    last = statements[-1]
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return last_name(last.value.func) in ("exit", "_exit", "quit", "abort")
    return isinstance(last, (ast.Raise, ast.Return, ast.Continue, ast.Break))


def last_name(function):
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def printable(text):
    """A text as Unicode has it: half a character, as Python's escapes make it, is written as its escape."""
    return text.encode("utf-8", "backslashreplace").decode()


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_scalar(value):
    return value is None or isinstance(value, (bool, int, float, str))


def is_whole(value):
    return isinstance(value, int) and not isinstance(value, bool)


def can_stand_for(value):
    return is_scalar(value) or isinstance(value, (Box, Code))


def can_change(value):
    """Whether it can be another one later: what a call gave that is not known is not known anyway."""
    return not isinstance(value, Made)


def is_known(value):
    return is_scalar(value) or (isinstance(value, Box) and value.code is None)


class Reader:
    def __init__(self, text):
        self.left = BUDGET
        self.tree = ast.parse(text)
        self.globals = {"__name__": "__main__"}
        # The scopes of each function that is being followed, from the inside.
        self.scopes = [[self.globals]]
        nodes = list(ast.walk(self.tree))
        # Names that functions bind elsewhere: what they are when is not followed.
        self.shared = {name for node in nodes if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        # Whether names may be bound in ways that cannot be seen.
        self.is_blind = any(
            last_name(call.func) in REACHING or (last_name(call.func) == "vars" and not call.args) for call in calls
        )
        # The names that `import .. as ..` gave, and what they name.
        self.aliases = {}
        # The lines of conditions that are not known, around what is being followed.
        self.conditions = []
        # Functions that are being followed.
        self.within = []
        self.is_calling_back = False
        self.functions, self.classes, self.instances, self.boxes = [], [], [], []
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
        return " ".join(printable(ast.unparse(node)).split())[:200]

    def unknown(self, node):
        return Code(self.code(node))

    # Names

    def find(self, name):
        for scope in self.scopes[-1]:
            if name in scope:
                return Code(name) if self.is_blind and name != "__name__" and can_change(scope[name]) else scope[name]
        return None

    def has(self, name):
        return any(name in scope for scope in self.scopes[-1])

    def bind(self, name, value):
        self.scopes[-1][0][name] = Code(name) if name in self.shared and can_change(value) else value

    def box(self, items):
        self.boxes.append(Box(items, tuple(self.conditions)))
        return self.boxes[-1]

    def is_doubtful(self, of):
        """Whether what is done to something now is done under a condition that it was not made under."""
        return of.conditions[: len(self.conditions)] != tuple(self.conditions)

    def changed(self, *change):
        """Notes a change that was made where a function may have returned before: in it that is so, and not afterwards."""
        for frame in self.within:
            if frame["may_have_left"]:
                frame["changes"].append(change)

    def doubtful(self, node):
        """What has this value under a condition that is not known."""
        return Code("%s (line %d decides whether)" % (self.code(node), self.conditions[-1]))

    def assign(self, target, value, node):
        if isinstance(target, ast.Name):
            self.bind(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = value.items if isinstance(value, Box) and value.code is None else None
            is_starred = any(isinstance(part, ast.Starred) for part in target.elts)
            if not isinstance(parts, list) or len(parts) != len(target.elts) or is_starred:
                self.escape(node)
                self.spoil(value, node)
                parts = [self.unknown(node) for _ in target.elts]
            for part, one in zip(target.elts, parts):
                self.assign(part, one, node)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, self.unknown(node), node)
        elif isinstance(target, ast.Attribute):
            self.set_attribute(self.value(target.value), target.attr, value, node)
        elif isinstance(target, ast.Subscript):
            of, key = self.value(target.value), self.value(target.slice)
            if isinstance(of, Box):
                self.put(of, key, value, node)
            else:
                self.escape(target.value)

    def set_attribute(self, of, name, value, node):
        if isinstance(of, (Instance, Class)):
            is_new = isinstance(value, Made) and name not in of.attributes
            is_doubtful = isinstance(of, Class) and self.conditions or isinstance(of, Instance) and self.is_doubtful(of)
            if is_doubtful and not is_new:
                self.spoil(value, node)
                self.spoil(of.attributes.get(name), node)
                value = self.doubtful(node)
            of.attributes[name] = value
            self.changed(of, name)
        elif isinstance(of, Made) and (of in self.estimators or of in self.tuners):
            if of.as_fitted is None:
                # Such as estimator.max_run = 3600.
                of.keywords.append((name, self.doubtful(node) if self.is_doubtful(of) else value))
        else:
            # It may be any of them.
            for one in self.instances + self.classes:
                if name in one.attributes and can_change(one.attributes[name]):
                    one.attributes[name] = self.unknown(node)

    def attribute(self, of, name, node):
        """Of an instance or a class of this program."""
        lines = (of.of if isinstance(of, Instance) else of).lines()
        method = lines[0].method(name)
        if method is not None:
            # A property, or it is called later.
            self.by_others(method, node, of if isinstance(of, Instance) else None)
            return self.unknown(node)
        if name.startswith("__"):
            self.spoil(of, node)
            return self.unknown(node)
        having = [one for one in ([of] if isinstance(of, Instance) else []) + lines if name in one.attributes]
        if not having:
            return self.unknown(node)
        found = having[0].attributes[name]
        # What a class has may be a descriptor, which says what its instances have.
        is_covered = having[0] is of and any(isinstance(one.attributes[name], (Made, Code)) for one in having[1:])
        is_plain = of.is_plain and all(one.is_plain for one in lines) and not is_covered
        return self.unknown(node) if can_change(found) and not is_plain else found

    def put(self, box, key, value, node):
        if self.is_doubtful(box):
            self.spoil(value, node)
            value = self.doubtful(node)
        is_place = isinstance(box.items, list) and is_whole(key) and -len(box.items) <= key < len(box.items)
        if is_place or (isinstance(box.items, dict) and isinstance(key, str)):
            box.items[key] = value
        else:
            self.spoil(value, node)
            box.code = self.code(node)
        self.changed(box)

    def spoil(self, value, node, depth=0):
        """What is not known may have changed this, or will."""
        if depth >= DEEPEST:
            return
        if isinstance(value, Box) and value.code is None:
            self.spend(1 + len(value.items))
            value.code = "%s (line %d may change it)" % (self.code(node), node.lineno)
            for part in list(value.items.values() if isinstance(value.items, dict) else value.items):
                self.spoil(part, node, depth + 1)
        elif isinstance(value, (Instance, Class)) and value.is_plain:
            self.spend(1 + len(value.attributes))
            value.is_plain = False
            for part in list(value.attributes.values()):
                self.spoil(part, node, depth + 1)
        elif isinstance(value, Made) and value not in self.estimators and value not in self.tuners:
            self.spend(1 + len(value.args) + len(value.keywords))
            for part in value.values():
                self.spoil(part, node, depth + 1)
        elif isinstance(value, Function):
            self.by_others(value, node)

    def spoil_parts(self, box, node):
        if isinstance(box, Box):
            for part in list(box.items.values() if isinstance(box.items, dict) else box.items):
                self.spoil(part, node)

    def escape(self, node):
        """Spoils what the value of an expression may be, or have in it, where it is not known: it goes by another name from now on."""
        self.spend(1)
        if isinstance(node, ast.Name):
            if self.has(node.id):
                self.spoil(self.find(node.id), node)
        elif isinstance(node, ast.Subscript):
            of = self.find(node.value.id) if isinstance(node.value, ast.Name) else None
            if isinstance(of, Box):
                key = node.slice.value if isinstance(node.slice, ast.Constant) else None
                known = of.items.get(key) if isinstance(of.items, dict) and isinstance(key, str) else None
                if known is None:
                    self.spoil_parts(of, node)
                else:
                    self.spoil(known, node)
            else:
                self.escape(node.value)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            of = self.find(node.value.id)
            is_own = isinstance(of, (Instance, Class))
            self.spoil(of.attributes.get(node.attr) if is_own else of, node)
        elif isinstance(node, ast.IfExp):
            self.escape(node.body)
            self.escape(node.orelse)
        elif isinstance(node, (ast.Compare, ast.JoinedStr, ast.Constant, ast.UnaryOp)):
            pass
        else:
            # A text or a number in it has no other names, and does not lose by it.
            for part in ast.iter_child_nodes(node):
                if isinstance(part, (ast.expr, ast.keyword, ast.comprehension)):
                    self.escape(part)

    def forget(self, node):
        """Anything may have been changed, but for names, which functions bind for themselves."""
        for one in self.boxes + self.instances + self.classes:
            self.spoil(one, node)

    def call_back(self, name, node):
        """What is not known may call a function that it was given, or a method of an object."""
        if not self.is_calling_back:
            self.is_calling_back = True
            # It is followed for what it changes. Whatever it makes, it makes where it is called otherwise.
            before = self.marks()
            for function in self.functions[:]:
                if function.is_left or (function.owner is not None and function.node.name == name):
                    self.by_others(function, node, is_now=True)
            self.back_to(before)
            self.is_calling_back = False

    def by_others(self, function, node, instance=None, is_now=False):
        """Follows a function that something else may call, now or later, and with what is not known."""
        if function.is_left and not is_now:
            return
        function.is_left = function.is_left or not is_now
        is_again = function.is_called
        before = self.marks()
        self.conditions.append(node.lineno)
        try:
            self.run(function, None, [], instance, node)
        finally:
            self.conditions.pop()
        if is_again:
            self.back_to(before)

    def marks(self):
        """What was found so far."""
        lists = (self.estimators, self.tuners, self.others, self.fits, self.hyperparameters, self.functions, self.classes)
        not_called = [one for one in self.functions if not one.is_called]
        not_fitted = [one for one in self.estimators if one.as_fitted is None]
        self.spend(len(self.functions) + len(self.estimators))
        return [(one, len(one)) for one in lists], not_called, not_fitted

    def back_to(self, marks):
        lists, not_called, not_fitted = marks
        for one, length in lists:
            del one[length:]
        for one in not_called:
            one.is_called = False
        for one in not_fitted:
            one.as_fitted = None

    # Statements

    def block(self, statements):
        for node in statements:
            self.statement(node)

    def perhaps(self, line, *branches):
        """Follows blocks of which a condition decides, each from the same names. Afterwards, what one of them has bound is not known,
        unless it is new and no literal: an estimator that is made in one of them is the one that is fitted later."""
        scope = self.scopes[-1][0]
        before, bound, may_leave = dict(scope), {}, False
        for block in branches:
            scope.clear()
            scope.update(before)
            self.spend(len(before))
            self.conditions.append(line)
            try:
                self.block(block)
            except Return:
                may_leave = True
            finally:
                self.conditions.pop()
            for name, value in scope.items():
                if name not in before or value is not before[name]:
                    bound.setdefault(name, []).append(value)
        scope.clear()
        scope.update(before)
        for name, values in bound.items():
            made = [value for value in values if value in self.estimators or value in self.tuners]
            is_new = name not in before and (len(made) == 1 or (len(values) == 1 and not can_stand_for(values[0])))
            value = made[0] if made else values[0]
            if not is_new:
                # Its name stands for any of them.
                for one in values + [before.get(name)]:
                    self.spoil(one, ast.Name(id=name, lineno=line))
                value = Code("%s (line %d decides what)" % (name, line))
            scope[name] = value
        if may_leave and self.within:
            self.within[-1]["may_have_left"] = True

    def loop(self, line, block, otherwise):
        """What a loop changes is not known at the beginning of its block. It is found out first; what is made then does not count."""
        scope = self.scopes[-1][0]
        before, marks, returned = set(scope), self.marks(), [frame["value"] for frame in self.within]
        self.perhaps(line, block)
        self.back_to(marks)
        for frame, value in zip(self.within, returned):
            frame["value"] = value
        for name in [name for name in scope if name not in before]:
            del scope[name]
        self.perhaps(line, block)
        if otherwise:
            self.perhaps(line, otherwise)

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
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            over = self.value(node.iter)
            if isinstance(over, Box):
                self.spoil_parts(over if isinstance(over.items, list) else None, node.iter)
            self.assign(node.target, Code(self.code(node.target)), node.target)
            self.loop(node.lineno, node.body, node.orelse)
        elif isinstance(node, ast.While):
            test = ast.copy_location(ast.Expr(node.test), node.test)
            self.loop(node.lineno, [test] + node.body, node.orelse)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            is_sure = True
            for item in node.items:
                value = self.value(item.context_expr)
                self.spoil(value if isinstance(value, Instance) else None, node.items[0].context_expr)
                # Others may end the block before its end, and go on after it.
                is_sure = is_sure and isinstance(value, Made) and value.name in MANAGERS
                if item.optional_vars is not None:
                    self.assign(item.optional_vars, value if isinstance(value, Made) else Code("?"), item.context_expr)
            if is_sure:
                self.block(node.body)
            else:
                self.perhaps(node.lineno, node.body)
        elif isinstance(node, ast.Try) or type(node).__name__ == "TryStar":
            try:
                self.attempt(node)
            finally:
                self.block(node.finalbody)
        elif type(node).__name__ == "Match":
            self.value(node.subject)
            self.escape(node.subject)
            for part in [part for case in node.cases for part in ast.walk(case.pattern)]:
                name = getattr(part, "name", None) or getattr(part, "rest", None)
                if isinstance(name, str):
                    self.bind(name, Code(name))
            self.perhaps(node.lineno, *[case.body for case in node.cases])
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.bind(node.name, self.function(node))
        elif isinstance(node, ast.ClassDef):
            self.bind(node.name, self.class_of(node))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                if alias.name == "*":
                    # It may bind any name anew.
                    scope = self.scopes[-1][0]
                    scope.update((name, Code(name)) for name, value in scope.items() if can_change(value) and name != "__name__")
                    continue
                name = (alias.asname or alias.name).split(".")[0]
                self.aliases.pop(name, None)
                if alias.asname:
                    self.aliases[name] = alias.name.split(".")[-1]
                self.bind(name, Code(name))
        elif isinstance(node, ast.Delete):
            for target in node.targets:
                self.delete(target)
        elif isinstance(node, ast.Return):
            value = None if node.value is None else self.value(node.value)
            if self.within:
                frame = self.within[-1]
                is_sure = len(self.conditions) == frame["depth"] and frame["value"] is self
                is_first = frame["value"] is self and isinstance(value, (Made, Instance))
                if not is_sure:
                    # It goes by another name from now on, perhaps.
                    for one in (value, frame["value"]):
                        if isinstance(one, (Box, Function)):
                            self.spoil(one, node)
                frame["value"] = value if is_sure or is_first else self.doubtful_return(node)
            raise Return
        else:
            for part in ast.iter_child_nodes(node):
                if isinstance(part, ast.expr):
                    self.value(part)

    def attempt(self, node):
        """A try and its handlers. Where a failure does not end the block that it is in, how far it came is not known."""
        for handler in node.handlers:
            if handler.type is not None:
                self.value(handler.type)
        if all(leaves(handler.body) for handler in node.handlers):
            if self.within and any(isinstance(handler.body[-1], ast.Return) for handler in node.handlers):
                self.within[-1]["may_have_left"] = True
            self.block(node.body)
            self.block(node.orelse)
        else:
            self.perhaps(node.lineno, node.body + node.orelse)
        for handler in node.handlers:
            if handler.name is not None:
                self.bind(handler.name, Code(handler.name))
        if node.handlers:
            self.perhaps(node.lineno, *[handler.body for handler in node.handlers])

    def function(self, node, owner=None):
        own = node.args
        names = [one.arg for one in own.posonlyargs + own.args]
        usual = {name: self.value(value) for name, value in zip(reversed(names), reversed(own.defaults))}
        usual.update((one.arg, self.value(value)) for one, value in zip(own.kwonlyargs, own.kw_defaults) if value is not None)
        for one in node.decorator_list:
            self.value(one)
        # A method does not see the names of its class.
        made = Function(node, self.scopes[-1][1:] if owner is not None else self.scopes[-1], usual, owner)
        self.functions.append(made)
        return made

    def class_of(self, node):
        bases = [self.value(base) for base in node.bases]
        known = [base for base in bases if isinstance(base, Class)]
        is_plain = len(known) < 2 and all(
            isinstance(base, Class) or (isinstance(place, ast.Name) and place.id == "object")
            for base, place in zip(bases, node.bases)
        )
        made = Class(node, known, is_plain and not node.decorator_list and not node.keywords)
        for part in node.decorator_list + [keyword.value for keyword in node.keywords]:
            self.value(part)
        scope = {}
        self.scopes.append([scope] + self.scopes[-1])
        try:
            for part in node.body:
                if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    scope[part.name] = made.methods[part.name] = self.function(part, made)
                    made.is_plain = made.is_plain and part.name not in HOOKS
                else:
                    self.statement(part)
        finally:
            self.scopes.pop()
        made.attributes = {name: value for name, value in scope.items() if name not in made.methods}
        self.classes.append(made)
        return made

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
            self.bind(target.id, after)
        elif isinstance(target, ast.Attribute):
            of = self.value(target.value)
            before = self.attribute(of, target.attr, target) if isinstance(of, (Instance, Class)) else None
            if isinstance(before, Box):
                return self.extend(before, value, node.value)
            after = self.operation(node, type(node.op), before, value) if before is not None else self.unknown(node)
            self.set_attribute(of, target.attr, after, node)
        elif isinstance(target, ast.Subscript):
            of, key = self.value(target.value), self.value(target.slice)
            if isinstance(of, Box):
                before = self.item(of, key, target)
                if isinstance(before, Box):
                    return self.extend(before, value, node.value)
                self.put(of, key, self.operation(node, type(node.op), before, value), node)
            else:
                self.escape(target.value)

    def extend(self, box, value, node):
        """Adds a list to a list, or a table to a table, in place."""
        if not isinstance(value, Box) or value.code is not None or type(value.items) is not type(box.items):
            self.spoil(value, node)
            box.code = self.code(node)
        elif isinstance(box.items, dict):
            for key, one in list(value.items.items()):
                self.put(box, key, one, node)
        elif self.is_doubtful(box):
            self.spoil(value, node)
            box.code = self.code(node)
        else:
            box.items += value.items
        self.changed(box)
        self.spend(len(box.items))

    def delete(self, target):
        if isinstance(target, ast.Name):
            self.scopes[-1][0].pop(target.id, None)
        elif isinstance(target, ast.Attribute):
            self.set_attribute(self.value(target.value), target.attr, self.unknown(target), target)
        elif isinstance(target, ast.Subscript):
            of, key = self.value(target.value), self.value(target.slice)
            if isinstance(of, Box):
                self.remove(of, key, target)
            else:
                self.escape(target.value)

    def remove(self, box, key, node):
        if self.is_doubtful(box) or not isinstance(box.items, dict) or not isinstance(key, str):
            box.code = self.code(node)
        else:
            box.items.pop(key, None)
        self.changed(box)

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
                        self.escape(node)
                        return self.unknown(node)
                    parts += more.items
                else:
                    parts.append(self.value(part))
            return self.box(parts)
        if isinstance(node, ast.Dict):
            return self.table(node)
        if isinstance(node, ast.UnaryOp):
            value = self.value(node.operand)
            if isinstance(node.op, ast.USub) and is_number(value) and abs(value) < 2**63:
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
            if isinstance(of, (Instance, Class)):
                return self.attribute(of, node.attr, node)
            # Such as a method, which is called later.
            self.spoil(of if isinstance(of, Box) else None, node)
            return self.unknown(node)
        if isinstance(node, ast.Subscript):
            of, key = self.value(node.value), self.value(node.slice)
            found = self.item(of, key, node)
            if isinstance(found, Code):
                self.spoil_parts(of, node)
            return found
        if isinstance(node, ast.Await):
            return self.value(node.value)
        if isinstance(node, ast.NamedExpr):
            value = self.value(node.value)
            self.assign(node.target, value, node.value)
            return value
        if isinstance(node, ast.Call):
            return self.call(node)
        # Something else with calls in it, perhaps. They take place under conditions, if at all, and with names of its own.
        parts = list(ast.walk(node))
        own = {part.id: Code(part.id) for part in parts if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load)}
        own.update((part.arg, Code(part.arg)) for part in parts if isinstance(part, ast.arg))
        for part in parts:
            if isinstance(part, ast.NamedExpr):
                self.bind(part.target.id, Code(part.target.id))
        self.conditions.append(node.lineno)
        self.scopes.append([own] + self.scopes[-1])
        for part in parts:
            self.spend(1)
            if isinstance(part, ast.Call) and id(part) not in self.seen:
                self.value(part)
        self.scopes.pop()
        self.conditions.pop()
        self.escape(node)
        return self.unknown(node)

    def table(self, node):
        items = {}
        for key, value in zip(node.keys, node.values):
            one = self.value(value)
            if key is None:
                if not isinstance(one, Box) or one.code is not None or not isinstance(one.items, dict):
                    self.escape(node)
                    return self.unknown(node)
                items.update(one.items)
                self.spend(len(one.items))
                continue
            name = self.value(key)
            if not isinstance(name, str):
                self.escape(node)
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
        for one in (left, right):
            # It may be in what comes of it.
            self.spoil(one if isinstance(one, Box) else None, node)
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
                    self.spoil(more, node)
                    args.append(Several(self.code(part)))
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
            if isinstance(own, Instance):
                method = own.of.method("__call__")
                if method is not None:
                    return self.follow(method, node, own)
                self.spoil(own, node)
            if own is None and name in ("str", "int", "float", "dict", "list", "tuple"):
                return self.built_in(name, node)
            if own is None and name in ("setattr", "delattr"):
                return self.set_named(name, node)
            if own is None and name == "super":
                # What a base that is not known does to an instance is not, either.
                for value in list(self.scopes[-1][0].values()):
                    self.spoil(value if isinstance(value, (Instance, Class)) else None, node)
        if isinstance(function, ast.Attribute):
            base = self.of_base(function)
            if base is not None:
                return self.follow(base[0], node, base[1])
            of = self.value(function.value)
            if isinstance(of, (Instance, Class)):
                lines = (of.of if isinstance(of, Instance) else of).lines()
                method = lines[0].method(name)
                if method is not None and isinstance(of, Instance) and name not in of.attributes:
                    return self.follow(method, node, of)
                if method is not None:
                    self.by_others(method, node)
                self.spoil(of, node)
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
            # It has what it was given.
            self.spoil(of if isinstance(of, Made) else None, node)
        elif not isinstance(function, ast.Name):
            own = self.value(function)
            if isinstance(own, Function):
                return self.follow(own, node)
            if isinstance(own, Class):
                return self.make(own, node)
            self.escape(function)
        args, keywords = self.arguments(node)
        if not name[:1].isupper() and name not in READERS:
            for value in args + [value for _, value in keywords]:
                self.spoil(value, node)
            self.call_back(name if isinstance(function, ast.Attribute) else None, node)
        else:
            for value in args + [value for _, value in keywords]:
                # Such as the target of a thread.
                self.spoil(value if isinstance(value, Function) else None, node)
        made = Made(node, name, args, keywords, tuple(self.conditions))
        if name in ESTIMATORS:
            self.estimators.append(made)
        elif name == TUNER:
            self.tuners.append(made)
        elif name in OTHERS:
            self.others.append(made)
        return made

    def of_base(self, function):
        """What `super().name` is in a method: the method of a base of this program, and the instance."""
        of = function.value
        is_super = isinstance(of, ast.Call) and not of.args and last_name(of.func) == "super" and not self.has("super")
        owner = self.within[-1]["of"].owner if self.within else None
        method = owner.bases[0].method(function.attr) if is_super and owner is not None and owner.bases else None
        names = self.within[-1]["of"].node.args.args if method is not None else []
        instance = self.find(names[0].arg) if names else None
        return (method, instance) if isinstance(instance, Instance) else None

    def set_named(self, name, node):
        """setattr or delattr."""
        args, keywords = self.arguments(node)
        of, key = (args + [None, None])[:2]
        is_known = isinstance(key, str) and len(args) == (3 if name == "setattr" else 2)
        if isinstance(of, Made) and (of in self.estimators or of in self.tuners) and not is_known:
            of.args = [self.unknown(node) for _ in of.args]
            of.keywords = [(one, self.unknown(node)) for one, _ in of.keywords]
        elif is_known and isinstance(of, (Instance, Class, Made)):
            self.set_attribute(of, key, args[2] if name == "setattr" else self.unknown(node), node)
        else:
            for one in [of] if isinstance(of, (Instance, Class)) else self.instances + self.classes:
                self.spoil(one, node)
        return None

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
        if name in ("dict", "list", "tuple"):
            # What they were given may be in them.
            for value in args + [value for _, value in keywords]:
                self.spoil(value, node)
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
            self.spoil_parts(box if method in ("values", "items") else None, node)
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
            elif method == "setdefault" and (box.code is not None or args[0] not in box.items):
                is_sure = box.code is None and not self.is_doubtful(box)
                self.put(box, args[0], usual, node)
                return found if is_sure else self.unknown(node)
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
        for value in args + [value for _, value in keywords]:
            self.spoil(value, node)
        self.spoil_parts(box, node)
        box.code = self.code(node)
        self.changed(box)
        return self.unknown(node)

    def of_made(self, made, method, node):
        args, keywords = self.arguments(node)
        call = Made(node, method, args, keywords, tuple(self.conditions))
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
        if function.is_plain:
            return self.run(function, args, keywords, instance, node)
        for value in args + [value for _, value in keywords]:
            self.spoil(value, node)
        self.by_others(function, node, instance, is_now=True)
        return self.unknown(node)

    def run(self, function, args, keywords, instance, node):
        """Follows a function; with no list of arguments, whatever they are."""
        function.is_called = True
        if len(self.within) >= DEEPEST or any(frame["of"] is function for frame in self.within):
            self.forget(node)
            return self.unknown(node)
        own = function.node.args
        names = [one.arg for one in own.posonlyargs + own.args]
        scope = {name: Code(name) for name in names + [one.arg for one in own.kwonlyargs]}
        places = args or []
        if any(isinstance(value, Several) for value in places):
            places = []
        if args is not None and len(places) == len(args) and all(name != "**" for name, _ in keywords):
            scope.update(function.usual)
        if instance is not None and names and not function.node.decorator_list:
            scope[names.pop(0)] = instance
        scope.update(zip(names, places))
        if args is not None:
            scope.update((name, value) for name, value in keywords if name in scope)
        for one in (own.vararg, own.kwarg):
            if one is not None:
                scope[one.arg] = Code(one.arg)
        # Those that go into `*` or `**`, or to a place that is not known.
        taken = list(scope.values())
        for value in (args or []) + [value for _, value in keywords]:
            if not any(value is one for one in taken):
                self.spoil(value, node)
        for name in self.shared:
            if name in scope and can_change(scope[name]):
                self.spoil(scope[name], node)
                scope[name] = Code(name)
        # `self` marks a function that has not returned yet.
        frame = {"of": function, "value": self, "depth": len(self.conditions), "may_have_left": False, "changes": []}
        self.within.append(frame)
        self.scopes.append([scope] + function.scopes)
        try:
            self.block(function.node.body)
        except Return:
            pass
        finally:
            self.scopes.pop()
            self.within.pop()
        for of, *name in frame["changes"]:
            if name:
                of.attributes[name[0]] = self.unknown(node)
            else:
                self.spoil(of, node)
        return None if frame["value"] is self else frame["value"]

    def make(self, of, node):
        args, keywords = self.arguments(node) if node is not None else (None, [])
        of.instance = instance = Instance(of, tuple(self.conditions))
        self.instances.append(instance)
        first = of.method("__init__")
        if first is not None and first.is_plain:
            self.run(first, args, keywords, instance, node or first.node)
        else:
            for value in (args or []) + [value for _, value in keywords]:
                self.spoil(value, node)
            if first is not None:
                self.by_others(first, node or first.node, instance)
        return instance

    # What is printed

    def encoded(self, value, depth=0):
        self.spend(1)
        if is_scalar(value):
            self.spend(len(value) if isinstance(value, str) else 0)
            is_whole = not isinstance(value, str) or printable(value) == value
            return {"value": value} if is_whole else {"code": ascii(value)[:200]}
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
                if any(printable(name) != name for name in value.items):
                    return {"code": "{..}"}
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
                for method in one.methods.values():
                    if not method.is_called and matters(method.node):
                        self.run(method, None, [], one.instance, method.node)
        for function in list(self.functions):
            if not function.is_called and function.owner is None and matters(function.node):
                self.run(function, None, [], None, function.node)


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
    result = Reader(program(sys.stdin.buffer.read().decode())).found()
except SyntaxError as error:
    result = {"error": printable("line %s: %s" % (error.lineno, error.msg))}
except TooLarge:
    result = {"error": "its values are too large: more than %d steps, parts and characters" % BUDGET}
except (ValueError, RecursionError, MemoryError) as error:
    result = {"error": printable("%s" % (error or type(error).__name__))}
print(json.dumps(result))
