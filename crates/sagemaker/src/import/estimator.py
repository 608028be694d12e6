# Reads a Python program on standard input and prints the calls that make and fit an estimator of SageMaker's SDK, as JSON.
# The program is parsed and never run. A name counts as its value if it is bound once, at the top, to a literal.
import ast
import json
import operator
import sys

ESTIMATORS = ("PyTorch", "TensorFlow", "Estimator")
OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


# Names may name others, so that few lines stand for values of any size: this many parts and characters are read.
BUDGET = 200_000


class Unknown(Exception):
    pass


class TooLarge(Exception):
    pass


def last_name(function):
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Reader:
    def __init__(self, text):
        self.left = BUDGET
        self.tree = ast.parse(text)
        self.names = self.constants()

    def constants(self):
        bound, values = {}, {}
        changed = set()
        quiet = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                bound[node.id] = bound.get(node.id, 0) + 1
            elif isinstance(node, ast.arg):
                changed.add(node.arg)
            elif isinstance(node, ast.alias):
                changed.add((node.asname or node.name).split(".")[0])
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                changed.add(node.name)
            elif isinstance(node, ast.ExceptHandler) and node.name:
                changed.add(node.name)
            elif isinstance(node, ast.Call) and last_name(node.func) in ESTIMATORS + ("fit", "print"):
                # These do not change what they are given.
                for part in node.args + [keyword.value for keyword in node.keywords]:
                    quiet.update(id(name) for name in ast.walk(part))
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                values[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                values[node.target.id] = node.value
        for node in ast.walk(self.tree):
            is_used = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in quiet
            # A list or a table that is used elsewhere may be changed there.
            if is_used and isinstance(values.get(node.id), (ast.List, ast.Dict)):
                changed.add(node.id)
        return {name: value for name, value in values.items() if bound.get(name) == 1 and name not in changed}

    def spend(self, amount):
        self.left -= amount
        if self.left < 0:
            raise TooLarge

    def literal(self, node, depth=0):
        if depth > 50:
            raise Unknown
        self.spend(1)
        deeper = depth + 1
        if isinstance(node, ast.Constant):
            value = node.value
            if value is None or isinstance(value, (bool, str)):
                self.spend(len(value) if isinstance(value, str) else 0)
                return value
            if isinstance(value, int) and abs(value) < 2**63:
                return value
            if isinstance(value, float) and value - value == 0:
                return value
        elif isinstance(node, ast.Name) and node.id in self.names:
            return self.literal(self.names[node.id], deeper)
        elif isinstance(node, (ast.List, ast.Tuple)):
            return [self.literal(part, deeper) for part in node.elts]
        elif isinstance(node, ast.Dict):
            keys = [self.literal(key, deeper) for key in node.keys if key is not None]
            if len(keys) == len(node.keys) and all(isinstance(key, str) for key in keys):
                return {key: self.literal(value, deeper) for key, value in zip(keys, node.values)}
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self.literal(node.operand, deeper)
            if is_number(value):
                return -value
        elif isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
            left, right = self.literal(node.left, deeper), self.literal(node.right, deeper)
            are_texts = isinstance(left, str) and isinstance(right, str) and isinstance(node.op, ast.Add)
            if are_texts or (is_number(left) and is_number(right)):
                if are_texts:
                    self.spend(len(left) + len(right))
                value = OPERATIONS[type(node.op)](left, right)
                if are_texts or (value - value == 0 and abs(value) < 2**63):
                    return value
        elif isinstance(node, ast.JoinedStr):
            parts = []
            for part in node.values:
                if isinstance(part, ast.FormattedValue):
                    if part.conversion != -1 or part.format_spec is not None:
                        raise Unknown
                    part = part.value
                value = self.literal(part, deeper)
                if not isinstance(value, (str, int)):
                    raise Unknown
                parts.append(str(value))
                self.spend(len(parts[-1]))
            return "".join(parts)
        raise Unknown

    def encoded(self, node, depth=0):
        self.spend(1)
        try:
            return {"value": self.literal(node)}
        except (Unknown, ArithmeticError):
            pass
        if isinstance(node, ast.Name) and node.id in self.names and depth < 20:
            return self.encoded(self.names[node.id], depth + 1)
        if isinstance(node, (ast.List, ast.Tuple)) and depth < 20:
            return {"list": [self.encoded(part, depth + 1) for part in node.elts]}
        if isinstance(node, ast.Dict) and depth < 20 and all(isinstance(key, ast.Constant) for key in node.keys):
            pairs = zip(node.keys, node.values)
            return {"table": [[str(key.value), self.encoded(value, depth + 1)] for key, value in pairs]}
        if isinstance(node, ast.Call) and depth < 20:
            return self.call(node, depth + 1)
        return {"code": self.code(node)}

    def code(self, node):
        # As much as there is to unparse.
        self.spend(sum(1 for _ in ast.walk(node)))
        return " ".join(ast.unparse(node).split())[:200]

    def call(self, node, depth=0):
        return {
            "call": last_name(node.func) or "",
            "line": node.lineno,
            "code": self.code(node),
            "args": [self.encoded(part, depth) for part in node.args],
            "keywords": [[keyword.arg or "**", self.encoded(keyword.value, depth)] for keyword in node.keywords],
        }

    def found(self):
        makers, names = [], set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and last_name(node.func) in ESTIMATORS:
                makers.append(node)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                if last_name(node.value.func) in ESTIMATORS:
                    names.update(target.id for target in node.targets if isinstance(target, ast.Name))

        def calls(method):
            for node in ast.walk(self.tree):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method:
                    of = node.func.value
                    if of in makers or (isinstance(of, ast.Name) and of.id in names):
                        yield self.call(node)

        return {
            "estimators": [self.call(node) for node in sorted(makers, key=lambda node: node.lineno)],
            "fits": list(calls("fit")),
            "hyperparameters": list(calls("set_hyperparameters")),
        }


try:
    result = Reader(sys.stdin.read()).found()
except SyntaxError as error:
    result = {"error": "line %s: %s" % (error.lineno, error.msg)}
except TooLarge:
    result = {"error": "its values are too large: more than %d parts and characters" % BUDGET}
except (ValueError, RecursionError, MemoryError) as error:
    result = {"error": "%s" % (error or type(error).__name__)}
print(json.dumps(result))
