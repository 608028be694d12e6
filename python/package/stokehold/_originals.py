"""Functions that `stokehold.pillow` and `stokehold.decoders` have replaced, so that pickle finds those that a script has imported before.

Pickle writes a function as the name of its module and its own, and checks that the module has it under that name. While a function of torchvision
is replaced, its `__module__` is therefore this module. Whoever reads the pickle gets the function that is in its place then.
"""

from __future__ import annotations

import importlib
from typing import Any, Optional

#: The functions by the names that they have here, and their own modules.
_moved: dict[str, Any] = {}


#: Built-in functions, whose names cannot be changed, and their modules.
_BUILT_IN = {"imread": "cv2", "imdecode": "cv2"}
#: Functions that keep their names. A replacement passes wrong arguments on to them, and Python's messages about wrong arguments have
#: the names.
_NAMED = dict.fromkeys(("autocontrast", "equalize", "invert"), "PIL.ImageOps")


def move(function: Any, module: Optional[str] = None) -> None:
    """Has pickle find a function here. A built-in one says of no module that it is its own."""
    if module is not None and getattr(function, "__module__", None) is None and _BUILT_IN.get(function.__name__) == module:
        _moved[function.__name__] = function
        function.__module__ = __name__
    if getattr(function, "__module__", None) in (None, __name__):
        return
    if _NAMED.get(function.__name__) == function.__module__:
        _moved[function.__name__] = function
        function.__module__ = __name__
        return
    name = f"{function.__module__}:{function.__name__}"
    _moved[name] = function
    function.__module__, function.__qualname__ = __name__, name.replace(".", "/")


def move_back(function: Any) -> None:
    """Has pickle find it where it was."""
    if getattr(function, "__module__", None) == __name__ and function.__name__ in _BUILT_IN:
        function.__module__ = None
        _moved.pop(function.__name__, None)
    elif getattr(function, "__module__", None) == __name__ and function.__qualname__ in _NAMED:
        function.__module__ = _NAMED[function.__qualname__]
        _moved.pop(function.__qualname__, None)
    elif getattr(function, "__module__", None) == __name__:
        name = function.__qualname__.replace("/", ".")
        function.__module__, _, function.__qualname__ = name.partition(":")
        _moved.pop(name, None)


def __getattr__(name: str) -> Any:
    place = name.replace("/", ".")
    if place in _moved:
        return _moved[place]
    module, separator, function = place.partition(":")
    if name in _BUILT_IN or name in _NAMED:
        return getattr(importlib.import_module(_BUILT_IN.get(name) or _NAMED[name]), name)
    if not separator:
        raise AttributeError(name)
    return getattr(importlib.import_module(module), function)
