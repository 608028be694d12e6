"""Holds requests (on standard input, a JSON list of [service, operation, request]) to botocore's models of the APIs, and
prints what is wrong. botocore checks names, types and least values; greatest values, patterns and enums are checked here."""

import json, re, sys
from botocore.session import get_session
from botocore.validate import ParamValidator

session = get_session()


def pattern(text):
    """Python's spelling of the model's pattern: letters, spaces and digits of all scripts."""
    return text.replace(r"\p{L}", r"\w").replace(r"\p{Z}", r"\s").replace(r"\p{N}", r"\d")


def look(shape, value, at):
    kind, rules = shape.type_name, shape.metadata
    if kind == "structure":
        for name, member in value.items():
            if name in shape.members:
                yield from look(shape.members[name], member, f"{at}.{name}")
    elif kind == "list":
        for i, member in enumerate(value):
            yield from look(shape.member, member, f"{at}[{i}]")
    elif kind == "map":
        for name, member in value.items():
            yield from look(shape.key, name, f"{at}.{name}")
            yield from look(shape.value, member, f"{at}.{name}")
    if kind in ("string", "list", "map") and len(value) > rules.get("max", len(value)):
        yield f"{at}: too long"
    if kind in ("integer", "long") and value > rules.get("max", value):
        yield f"{at}: too large"
    if kind == "string" and "pattern" in rules and not re.fullmatch(pattern(rules["pattern"]), value):
        yield f"{at}: not by its pattern"
    if kind == "string" and "enum" in rules and value not in rules["enum"]:
        yield f"{at}: not in its enum"


for number, (service, operation, request) in enumerate(json.load(sys.stdin)):
    shape = session.get_service_model(service).operation_model(operation).input_shape
    report = ParamValidator().validate(request, shape)
    for line in [report.generate_report()] if report.has_errors() else look(shape, request, ""):
        print(f"request {number}: {line}")
