"""stokehold.pillow in a script with handlers of signals, threads and forks, and with code that looks at classes."""

from __future__ import annotations

import io
import signal
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import photo

pytest.importorskip("PIL", reason="Pillow is not installed in this environment")

from PIL import Image, ImageOps  # noqa: E402

import stokehold.pillow as ours  # noqa: E402


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    ours.uninstall()
    ours._state.tested = ours._state.has_differed = False
    assert ours.install(0)
    yield
    ours.uninstall()


PHOTO = photo()


def opened() -> Any:
    return Image.open(io.BytesIO(PHOTO))


def rgb() -> Any:
    return opened().convert("RGB")


# Handlers of signals.


class Late(ValueError):
    pass


def late(*_: Any) -> Any:
    raise Late("the time is over")


class LateObject:
    def __call__(self, *_: Any) -> Any:
        late()


def ring(*_: Any, **__: Any) -> Any:
    """A signal arrives here."""
    signal.raise_signal(signal.SIGUSR1)
    return 0


class Rings:
    """A signal arrives when somebody looks into this."""

    __iter__ = __getitem__ = __len__ = __getattr__ = ring  # type: ignore[assignment]


class RingingFile(io.BytesIO):
    rings = False

    def read(self, size: Any = -1) -> bytes:
        return ring() if self.rings else super().read(size)


def read_while_it_rings() -> None:
    file = RingingFile(PHOTO)
    image = Image.open(file)
    file.rings = True
    image.convert("RGB")


def make_while_it_rings(method: str) -> None:
    image = rgb()
    source, ops = image._recorded
    image._recorded = types.SimpleNamespace(data=source.data, draft=source.draft, dense=ring, kept=ring), ops
    getattr(image, method)()


def give_up_while_it_rings(monkeypatch: Any) -> None:
    image = rgb()
    source, ops = image._recorded
    monkeypatch.setattr(ours._state, "damaged", (source, "damage", None))
    monkeypatch.setattr(ours, "_by_pillow", ring)
    ours._give_up(image, source, ops)


def fork_while_it_rings(monkeypatch: Any) -> None:
    image = rgb()
    monkeypatch.setattr(ours, "_become", ring)
    ours._make_all()
    assert image


def install_while_it_rings(monkeypatch: Any) -> None:
    ours.uninstall()
    ours._state.tested = False
    monkeypatch.setattr(ours, "_differences", ring)
    ours.install(0)


def watch_while_it_rings(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(get_default_dtype=ring))
    ours._watch_torchvision()


def border_while_it_rings(monkeypatch: Any) -> None:
    image = rgb()
    monkeypatch.setattr(Image, "new", ring)
    ImageOps.expand(image, 3)


MOMENTS: dict[str, Callable[[Any], Any]] = {
    "crop": lambda _: rgb().crop(Rings()),
    "resize": lambda _: rgb().resize(Rings()),
    "reduce": lambda _: rgb().reduce(2, Rings()),
    "transform": lambda _: rgb().transform((9, 9), 0, Rings()),
    "pad": lambda _: ImageOps.pad(rgb(), (90, 20), centering=Rings()),  # type: ignore[arg-type]
    "border": border_while_it_rings,
    "read": lambda _: read_while_it_rings(),
    "bytes": lambda _: make_while_it_rings("tobytes"),
    "pixels": lambda _: make_while_it_rings("getextrema"),
    "damage": give_up_while_it_rings,
    "fork": fork_while_it_rings,
    "install": install_while_it_rings,
    "torchvision": watch_while_it_rings,
}


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="this system has no signals")
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("handler", [late, LateObject()])
def test_an_exception_of_a_handler_reaches_the_script(handler: Any, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGUSR1, handler)
    left = ours.counts()["left"]
    try:
        with monkeypatch.context() as patches, pytest.raises(Late, match="the time is over"):
            MOMENTS[moment](patches)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert ours.counts()["left"] == left and not ours._state.refused
    # Nothing remains of it.
    assert ours.install(0) and rgb().crop((2, 3, 9, 9)).size == (7, 6)
