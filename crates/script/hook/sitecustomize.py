"""Starts Stokehold's hook, then the sitecustomize that this Python has of its own.

Python imports a module of this name when it starts. `stokehold profile`, `stokehold run` and jobs put this folder at the
front of PYTHONPATH; docs/guide/scripts.md says what the hook does.
"""


def _own_sitecustomize(here):
    """The sitecustomize that this one hides takes its place."""
    import importlib.machinery
    import importlib.util
    import os
    import sys

    # Nor another hook's, where one command of Stokehold's runs in another one.
    def is_hook(path):
        return os.path.abspath(path or ".") == here or os.path.exists(os.path.join(path, "_stokehold_hook.py"))

    others = [path for path in sys.path if not is_hook(path)]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    # As Python does: what it raises is printed by `site`.
    spec.loader.exec_module(module)


def _start(here):
    import importlib.util
    import os
    import sys

    if "_stokehold_hook" in sys.modules:
        # One command of Stokehold's in another one: the inner one's settings have both.
        return
    spec = importlib.util.spec_from_file_location("_stokehold_hook", os.path.join(here, "_stokehold_hook.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["_stokehold_hook"] = module
    spec.loader.exec_module(module)
    module.start()


def _run():
    import os

    here = os.path.dirname(os.path.abspath(__file__))
    try:
        _start(here)
    except Exception as error:  # The program comes first.
        import sys

        sys.stderr.write(f"stokehold: the hook did not start, and steps are not seen: {error!r}\n")
    _own_sitecustomize(here)


_run()
