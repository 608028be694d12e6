"""stokehold.pillow against the installed Pillow: pixels to the bit, behaviour, exceptions."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import io
import json
import multiprocessing
import os
import pickle
import random
import re
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Optional

import numpy as np
import pytest
from conftest import needs_torch, photo

PIL = pytest.importorskip("PIL", reason="Pillow is not installed in this environment")

from PIL import Image, ImageChops, ImageDraw, ImageEnhance, ImageFile, ImageFilter, ImageOps, ImageStat, JpegImagePlugin  # noqa: E402

import stokehold.pillow as ours  # noqa: E402

NEWER = tuple(int(number) for number in Image.__version__.split(".")[:2]) >= (9, 1)


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    # A test before this one may have had another Pillow.
    ours.uninstall()
    ours._state.tested = ours._state.has_differed = False
    assert ours.install(0)
    yield
    ours.uninstall()


KINDS: list[dict[str, Any]] = [
    {},
    {"subsampling": 0},
    {"subsampling": 1, "progressive": True},
    {"mode": "L"},
    {"mode": "CMYK"},
    {"quality": 20, "restart_marker_blocks": 4},
]
PHOTO = photo()


def rgb(data: bytes = PHOTO) -> Any:
    return Image.open(io.BytesIO(data)).convert("RGB")


def plainly(value: Any) -> Any:
    """A result in a form that can be compared."""
    if isinstance(value, Image.Image):
        return value.__class__.__name__, value.mode, value.size, value.tobytes(), sorted(map(repr, value.info))
    if isinstance(value, np.ndarray):
        return value.shape, value.strides, value.tobytes()
    if isinstance(value, (list, tuple)):
        return [plainly(one) for one in value]
    return value


def outcome(function: Callable[[], Any]) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return plainly(function())
    except Exception as error:
        return type(error), re.sub("0x[0-9a-f]+", "0x", str(error).replace("\n", " ")[:200])


def both(function: Callable[[], Any]) -> tuple[Any, Any]:
    """What a function gives without and with this module."""
    ours.uninstall()
    expected = outcome(function)
    assert ours.install(0)
    return expected, outcome(function)


# Pixels.


def drawn_chain(draws: random.Random, width: int, height: int) -> list[tuple[str, tuple[Any, ...]]]:
    """Operations that scripts use, with boxes inside and outside."""
    chain: list[tuple[str, tuple[Any, ...]]] = []
    for _ in range(draws.randint(0, 5)):
        kind = draws.choice(("crop", "crop", "resize", "resize", "reduce", "transpose", "copy", "enhance", "operation", "border", "convert", "convert", "rotate", "transform"))
        if kind == "crop":
            x0, y0 = draws.randint(-20, width), draws.randint(-20, height)
            box: tuple[Any, ...] = (x0, y0, x0 + draws.randint(1, width + 20), y0 + draws.randint(1, height + 20))
            if draws.random() < 0.2:
                box = tuple(edge + draws.random() for edge in box)
            chain.append((kind, box))
            left, upper, right, lower = (int(round(edge)) for edge in box)
            width, height = right - left, lower - upper
        elif kind == "resize":
            size = draws.choice((1, 3, 20, 97, 224, 300)), draws.choice((1, 2, 31, 97, 224))
            area = None
            if draws.random() < 0.4:
                left, upper = draws.uniform(0, width * 0.9), draws.uniform(0, height * 0.9)
                area = left, upper, draws.uniform(left + 0.01, width), draws.uniform(upper + 0.01, height)
            chain.append((kind, (size, draws.randrange(6), area, draws.choice((None, None, 1, 1.5, 2.0, 3)))))
            width, height = size
        elif kind == "reduce":
            factor = draws.choice((2, 3, 4, 5, 7, (1, 2), (3, 1), (draws.randint(1, 9), draws.randint(1, 9))))
            across, down = factor if isinstance(factor, tuple) else (factor, factor)
            area = None
            if draws.random() < 0.5:
                left, upper = draws.randrange(width), draws.randrange(height)
                area = left, upper, draws.randint(left + 1, width), draws.randint(upper + 1, height)
            chain.append((kind, (factor, area)))
            left, upper, right, lower = area or (0, 0, width, height)
            width, height = -((left - right) // across), -((upper - lower) // down)
        elif kind == "transpose":
            method = draws.randrange(7)
            chain.append((kind, (method,)))
            if method not in (0, 1, 3):
                width, height = height, width
        elif kind == "enhance":
            chain.append((kind, (draws.choice(("Brightness", "Contrast", "Color", "Sharpness")), draws.choice((0, 0.5, 1, draws.uniform(0, 2))))))
        elif kind == "operation":
            name = draws.choice(("posterize", "solarize", "equalize", "autocontrast", "invert"))
            values = {"posterize": (draws.randint(1, 8),), "solarize": (draws.randint(0, 256),)}
            chain.append((kind, (name, *values.get(name, ()))))
        elif kind == "border":
            fill: Any = draws.choice((0, 77, "red", (9, 80, 250), (1, 2, 3, 4), None))
            if draws.random() < 0.5:
                border: Any = draws.choice((draws.randint(0, 30), (3, 9), tuple(draws.randint(-9, 40) for _ in range(4))))
                left, top, right, bottom = (border,) * 4 if isinstance(border, int) else border if len(border) == 4 else border * 2
                if width + left + right < 1 or height + top + bottom < 1:
                    continue
                width, height = width + left + right, height + top + bottom
                chain.append(("operation", ("expand", border, fill or 0)))
            else:
                name = draws.choice(("pad", "contain", "fit"))
                size = draws.randint(1, 150), draws.randint(1, 150)
                chain.append(("operation", (name, size, draws.randrange(6), *((fill, (draws.random(), draws.random())) if name == "pad" else ()))))
                if name == "contain":
                    # A side may be rounded to 0.
                    ratio = min(size[0] / width, size[1] / height)
                    if ratio * min(width, height) < 2:
                        chain.pop()
                        continue
                    with Image.new("1", (width, height)) as same:
                        size = ImageOps.contain(same, size).size
                width, height = size
        elif kind == "convert":
            chain.append((kind, (draws.choice(("L", "RGB", None)),)))
        elif kind == "rotate":
            fill = draws.choice((None, (9, 80, 250)))
            chain.append((kind, (draws.choice((0, 90, 180, draws.uniform(-400, 400))), draws.choice((0, 2, 3)), False, None, None, fill)))
        elif kind == "transform":
            numbers = [draws.choice((0, draws.uniform(-1.5, 1.5))) for _ in range(6)]
            numbers[2], numbers[5] = draws.uniform(-40, 80), draws.uniform(-40, 80)
            width, height = draws.randint(1, 120), draws.randint(1, 120)
            chain.append((kind, ((width, height), 0, tuple(numbers), draws.choice((0, 2, 3)))))
        else:
            chain.append((kind, ()))
    return chain


def started(data: Any, how: int) -> Any:
    """An opened image of bytes or a file, in one of the ways that there are."""
    image = Image.open(io.BytesIO(data) if isinstance(data, bytes) else data)
    if how == 0:
        image.draft("RGB", (image.width // 3, image.height // 3))
    elif how == 1:
        image.draft(None, (image.width // 5, image.height // 9))
    elif how == 2:
        image.draft("L", (image.width // 2, image.height // 2))
    elif how == 3:
        return image.convert("L")
    elif how == 4:
        return image
    return image.convert("RGB")


def performed(image: Any, chain: list[tuple[str, tuple[Any, ...]]]) -> Any:
    for kind, parameters in chain:
        if kind == "crop":
            image = image.crop(parameters)
        elif kind == "enhance":
            image = getattr(ImageEnhance, parameters[0])(image).enhance(parameters[1])
        elif kind == "operation":
            image = getattr(ImageOps, parameters[0])(image, *parameters[1:])
        else:
            image = getattr(image, kind)(*parameters)
    return image


def looked_at(image: Any, how: int) -> bytes:
    """Pixels, by one of the ways that there are."""
    if how == 0:
        return np.asarray(image).tobytes()
    if how == 1:
        image.load()
        image.getpixel((0, 0))
    elif how == 2:
        return bytes(image.tobytes())
    else:
        image = image.copy()
        image.putpixel((0, 0), image.getpixel((0, 0)))
    return bytes(image.tobytes())


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_a_chain_gives_pillows_pixels(kind: int) -> None:
    draws = random.Random(kind)
    data = photo(kind, draws.randint(40, 200), draws.randint(40, 200), **KINDS[kind])
    remembered = 0
    for _ in range(60):
        with Image.open(io.BytesIO(data)) as header:
            start, how = draws.randrange(8), draws.randrange(4)
        chain = drawn_chain(draws, *started(data, start).size)

        def run(chain: Any = chain, start: int = start, how: int = how) -> Any:
            image = performed(started(data, start), chain)
            nonlocal remembered
            remembered += type(image) is ours._Remembered
            return image.mode, image.size, sorted(map(repr, image.info)), looked_at(image, how)

        expected, seen = both(run)
        assert expected == seen, (start, chain)
    assert remembered > 20


def test_borders_are_remembered() -> None:
    for image in (Image.open(io.BytesIO(PHOTO)), rgb(), rgb().resize((40, 30))):
        assert [type(one) for one in (ImageOps.expand(image, 3, "red"), ImageOps.pad(image, (64, 64)))] == [ours._Remembered] * 2
    wrong: list[Callable[[], Any]] = [
        lambda: ImageOps.expand(rgb(), -99), lambda: ImageOps.expand(rgb(), 2, "no colour"), lambda: ImageOps.expand(rgb(), (1, 2, 3)), lambda: ImageOps.expand(rgb(), 1.5),  # type: ignore[arg-type]
        lambda: ImageOps.pad(rgb(), (0, 9)), lambda: ImageOps.pad(rgb(), [64, 64]), lambda: ImageOps.pad(rgb(), (64, 32), centering=None), lambda: ImageOps.pad(rgb(), (64, 32), 99),  # type: ignore[arg-type]
    ]  # fmt: skip
    for function in wrong:
        expected, seen = both(function)
        assert expected == seen


def test_grey_is_remembered() -> None:
    grey = photo(mode="L")
    ops: list[tuple[str, tuple[Any, ...]]] = [("crop", (3, 5, 90, 80)), ("resize", ((40, 30), 2)), ("transpose", (0,)), ("reduce", (2,))]
    for begun in (lambda: Image.open(io.BytesIO(grey)), lambda: rgb().convert("L"), lambda: ImageOps.grayscale(rgb())):
        for back in (None, "RGB"):

            def run(begun: Any = begun, back: Any = back) -> Any:
                image = ImageOps.expand(performed(begun(), ops[:1]), 2, 77)
                for name, arguments in ops[1:]:
                    image = getattr(image, name)(*arguments)
                image = image.convert(back)
                kinds.append(type(image))
                return image, np.asarray(image), image.getpixel((2, 3)), image.getbands(), image

            kinds: list[Any] = []
            expected, seen = both(run)
            assert expected == seen and kinds == [Image.Image, ours._Remembered]


def thumbnailed(data: bytes, how: int, size: tuple[float, float], resample: int, gap: Any) -> Any:
    image = Image.open(io.BytesIO(data)) if how < 3 else rgb(data)
    if how == 1:
        image.load()
    elif how == 2:
        image.draft("L", (image.width // 2, image.height // 2))
    image.thumbnail(size, resample, gap)
    return image, image.size, image.tobytes(), image.convert("RGB").crop((0, 0, 9, 9)), image.draft("L", (5, 5)), getattr(image, "tile", None)


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_thumbnails_are_pillows(kind: int) -> None:
    draws = random.Random(kind)
    made = 0
    for number in range(40):
        data = photo(number, draws.randint(20, 400), draws.randint(20, 300), **KINDS[kind])
        size = draws.randint(1, 150), draws.choice((draws.randint(1, 150), 40.5))
        arguments = draws.randrange(4), size, draws.randrange(6), draws.choice((2.0, 2.0, 3, 1.2, None))
        expected, seen = both(lambda data=data, arguments=arguments: thumbnailed(data, *arguments))
        assert expected == seen, arguments
        made += ours.counts()["made"]
    # Images of inks are Pillow's until somebody converts them.
    assert made > 15 or KINDS[kind].get("mode") == "CMYK"


def test_a_thumbnail_of_a_damaged_file_is_pillows() -> None:
    draws = random.Random(6)
    for _ in range(60):
        data = bytearray(PHOTO)
        for _ in range(draws.randint(1, 3)):
            data[draws.randrange(2, len(data))] = draws.randrange(256)
        content = bytes(data[: draws.choice((len(data), draws.randrange(len(data))))])
        size = draws.choice((20, 37, 60, 149)), 150
        expected, seen = both(lambda content=content, size=size: thumbnailed(content, 0, size, 3, 2.0))
        assert expected == seen


def test_one_image_has_many_views() -> None:
    def views() -> Any:
        image = rgb()
        first = image.crop((3, 5, 80, 90)).resize((33, 44), 2)
        second = image.crop((20, 10, 120, 60)).resize((60, 10), 3)
        return first, second, image, image.resize((5, 5), 1)

    expected, seen = both(views)
    assert expected == seen


def test_pillow_13_and_its_order_of_passes() -> None:
    """On both sides of the edge between the two orders."""
    for size in ((140, 91), (140, 90), (140, 89), (150, 10), (60, 109), (149, 108)):
        expected, seen = both(lambda size=size: rgb().resize(size, 3))
        assert expected == seen, size


# Behaviour.


def saved_again() -> Any:
    kept, cropped = io.BytesIO(), io.BytesIO()
    Image.open(io.BytesIO(PHOTO)).save(kept, "JPEG", quality="keep")
    rgb().crop((3, 3, 60, 60)).save(cropped, "PNG")
    return kept.getvalue(), cropped.getvalue()


def with_orientation(orientation: int) -> bytes:
    file, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = orientation
    rgb().save(file, "JPEG", exif=exif.tobytes())
    return file.getvalue()


def changed_behind() -> Any:
    image = rgb()
    before = image.crop((0, 0, 50, 50))
    image.paste((1, 2, 3), (0, 0, 20, 20))
    return image, before, image.crop((0, 0, 50, 50))


def parsed() -> Any:
    parser = ImageFile.Parser()
    parser.feed(PHOTO[:300])
    parser.feed(PHOTO[300:])
    return parser.close()


def described() -> Any:
    opened = Image.open(io.BytesIO(PHOTO))
    turned = opened.convert("RGB").transpose(0)
    names = [sorted(name for name in vars(turned.copy()) if not name.startswith("_") and name != "im")]
    return names, [
        (image.__class__.__name__, image.format, image.mode, image.size, image.width, image.getbands(), image.palette, image.readonly)
        for image in (opened, turned, turned.resize((9, 9)))
    ]


def of_the_file() -> Any:
    image = Image.open(io.BytesIO(PHOTO))
    return image.get_format_mimetype(), sorted(image.app), image.quantization, image.layer, image.layers, getattr(image, "n_frames", 1)


def of_many_headers() -> Any:
    """Headers that are read without their tables, and some that are not."""
    found = []
    segment = b"\xff\xec\x00\x06own!"
    for kind in KINDS:
        data = photo(**kind)
        behind_tables = data.find(b"\xff\xc4")
        for content in (data, data[:2] + segment + data[2:], data[:behind_tables] + segment + data[behind_tables:], data[:2] + b"\xff" + data[2:], data[:700], data[:60]):
            try:
                image = Image.open(io.BytesIO(content))
            except Exception as error:
                found.append([type(error)])
                continue
            found.append([image.size, image.mode, image.info, image.app, image.applist, image.layer, image.quantization, image.tile, image.copy().info])
            second = Image.open(io.BytesIO(content))
            second.close()
            found.append([second.quantization, second.bits, second.layers])
    return [[repr(one) for one in each] for each in found]


def used_twice() -> Any:
    image = Image.open(io.BytesIO(PHOTO))
    return image.crop((0, 0, 9, 9)), image.resize((8, 8)), image, image.fp is None, image.tile


def small(method: str, *arguments: Any) -> Any:
    image = Image.open(io.BytesIO(PHOTO))
    getattr(image, method)(*arguments)
    return image.size, image.mode, image


def on_pixels() -> Any:
    a, b = rgb(), rgb().transpose(1)
    drawn = rgb()
    ImageDraw.Draw(drawn).ellipse((3, 3, 50, 50), (1, 2, 3))
    return (
        ImageChops.difference(a, b), Image.blend(a, b, 0.3), Image.composite(a, b, a.convert("L")), ImageStat.Stat(a).mean, a.histogram(),
        a.getextrema(), a.getbbox(), a.split(), a.filter(ImageFilter.BoxBlur(2)), a.point(lambda level: level // 2), drawn,
        a == rgb(), a == b, a.convert("L"), a.convert("HSV"), a.reduce(2), a.rotate(30), a.rotate(90, expand=True),
        a.transform((30, 30), Image.AFFINE if not NEWER else Image.Transform.AFFINE, (1, 0.2, 0, 0, 1, 3)), ImageOps.fit(a, (30, 40)),
        ImageOps.pad(a, (64, 64)), ImageOps.expand(a, 3, (1, 2, 3)), ImageOps.grayscale(a), ImageOps.mirror(a), a.resize((9, 9), reducing_gap=2.0),
    )  # fmt: skip


def written() -> Any:
    image = rgb()
    access = image.load()
    access[3, 4] = (9, 8, 7)
    return access[3, 4], image.getpixel((3, 4)), image


def enhancers() -> Any:
    image = rgb()
    contrast, color = ImageEnhance.Contrast(image), ImageEnhance.Color(image)
    changed = ImageEnhance.Sharpness(image)
    image = image.copy()
    second = rgb()
    behind = ImageEnhance.Contrast(second)
    second.paste((255, 255, 255), (0, 0, second.width, second.height // 2))
    other = ImageEnhance.Color(rgb())
    other.image = ImageOps.invert(rgb())

    class Own(ImageEnhance.Contrast):
        def __getattr__(self, name: str) -> Any:
            raise AttributeError(name)

    return changed.enhance(0.3), behind.enhance(0.5), other.enhance(0.5), Own(rgb()).enhance(np.float32(0.5)), contrast.degenerate, contrast.enhance(0.4), color.degenerate, color.enhance(-0.5), ImageEnhance.Sharpness(image.convert("L")).enhance(2)


def transparent() -> Any:
    image = rgb()
    image.info["transparency"] = (9, 9, 9)
    grey = image.convert("L")
    return grey, grey.info, ImageOps.expand(image, 3), ImageOps.expand(image, 3).info, grey.convert("RGB").info


def in_a_with_statement() -> Any:
    with Image.open(io.BytesIO(PHOTO)) as file:
        image = file.convert("RGB")
    return image, file.fp is None


def closed_between() -> Any:
    image = Image.open(io.BytesIO(PHOTO))
    part = image.crop((1, 2, 30, 40))
    image.close()
    return part, image.convert("RGB")


BEHAVIOURS: dict[str, Callable[[], Any]] = {
    function.__name__: function
    for function in (
        saved_again, changed_behind, parsed, described, of_the_file, of_many_headers, used_twice, transparent, on_pixels, written, enhancers, in_a_with_statement, closed_between,
    )  # fmt: skip
}
BEHAVIOURS.update(
    drafted=lambda: small("draft", "L", (50, 50)),
    thumbnail=lambda: small("thumbnail", (40, 40)),
    verified=lambda: small("verify"),
    pickled=lambda: [pickle.loads(pickle.dumps(image)) for image in (rgb().crop((1, 1, 9, 9)), Image.open(io.BytesIO(PHOTO)))],
    copied=lambda: [copy.copy(rgb()), copy.deepcopy(rgb()), rgb().copy()],
    turned=lambda: [ImageOps.exif_transpose(Image.open(io.BytesIO(with_orientation(number)))) for number in range(1, 9)],
    exif=lambda: dict(Image.open(io.BytesIO(with_orientation(6))).getexif()),
    size_of_zero=lambda: rgb().resize((0, 5)),
    box_outside=lambda: rgb().resize((5, 5), 2, (0, 0, 9999, 9999)),
    unknown_filter=lambda: rgb().resize((5, 5), 77),
    size_in_floats=lambda: rgb().resize((5.5, 5)),  # type: ignore[arg-type]
    crop_the_wrong_way=lambda: rgb().crop((5, 5, 2, 9)),
    unknown_method=lambda: rgb().transpose(9),  # type: ignore[arg-type]
    empty_crop=lambda: rgb().crop((5, 5, 5, 9)).size,
    sizes_of_numpy=lambda: [rgb().resize(np.array([30, 20])), rgb().resize([30, 20]), rgb().crop(np.array([3, 4, 50, 60]))],  # type: ignore[arg-type]
    from_the_class=lambda: [Image.Image.resize(rgb(), (20, 20)), Image.Image.crop(Image.open(io.BytesIO(PHOTO)), (1, 1, 5, 5))],
    arrays=lambda: [np.array(rgb()), np.asarray(rgb().crop((0, 0, 8, 8))), Image.fromarray(np.asarray(rgb())[:, ::-1])],
    behind_a_prefix=lambda: Image.open(io.BytesIO(PHOTO + b"behind the end")).convert("RGB"),
    half_a_file=lambda: rgb(PHOTO[: len(PHOTO) // 2]) and None,
    half_a_file_with_a_thumbnail=lambda: rgb((PHOTO[:2] + b"\xff\xe1\x00\x08own\xff\xd9\x00" + PHOTO[2:])[:3000]) and None,
    half_a_file_loaded=lambda: Image.open(io.BytesIO(PHOTO[: len(PHOTO) // 2])).load(),
    no_image=lambda: rgb(b"\xff\xd8\xff\xe0" + bytes(50)),
    arithmetic=lambda: rgb(photo(mode="L")).getpixel((3, 3)),
    of_grey=lambda: [Image.open(io.BytesIO(photo(mode="L"))), Image.open(io.BytesIO(photo(mode="L"))).resize((9, 9))],
    of_inks=lambda: [Image.open(io.BytesIO(photo(mode="CMYK"))), Image.open(io.BytesIO(photo(mode="CMYK"))).crop((1, 1, 9, 9))],
)


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_what_scripts_do_is_as_with_pillow(name: str) -> None:
    expected, seen = both(BEHAVIOURS[name])
    assert expected == seen


def test_a_class_of_the_scripts_own_has_the_pixels() -> None:
    class Own(Image.Image):
        pass

    class OwnFile(PIL.JpegImagePlugin.JpegImageFile):
        pass

    def taken(number: int) -> Any:
        image: Any = rgb().crop((3, 3, 40, 40)) if number == 0 else Image.open(io.BytesIO(PHOTO))
        if number == 2:
            image.crop((0, 0, 9, 9))
        image.__class__ = Own if number == 0 else OwnFile
        return image.getpixel((5, 5)), image.tobytes()

    for number in range(3):
        expected, seen = both(lambda number=number: taken(number))
        assert expected == seen and isinstance(expected, list), number


def test_an_image_is_an_image() -> None:
    image = rgb().resize((30, 20))
    assert isinstance(image, Image.Image)
    assert image.__class__ is Image.Image
    assert type(image) is not Image.Image
    image.getpixel((0, 0))
    assert type(image) is Image.Image


def test_a_cut_file_is_read_where_pillow_is_told_to() -> None:
    def cut() -> Any:
        ImageFile.LOAD_TRUNCATED_IMAGES = True
        try:
            return rgb(PHOTO[: len(PHOTO) * 2 // 3]).resize((20, 20))
        finally:
            ImageFile.LOAD_TRUNCATED_IMAGES = False

    expected, seen = both(cut)
    assert expected == seen
    assert isinstance(expected, list) or expected[0] == "Image"


def test_a_bomb_is_refused_by_its_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    expected, seen = both(lambda: Image.open(io.BytesIO(PHOTO)))
    assert expected == seen
    assert expected[0] is Image.DecompressionBombError


def test_damage_raises_what_pillow_raises() -> None:
    draws = random.Random(5)
    for _ in range(150):
        data = bytearray(PHOTO)
        for _ in range(draws.randint(1, 4)):
            data[draws.randrange(2, len(data))] = draws.randrange(256)
        content = bytes(data[: draws.choice((len(data), draws.randrange(len(data))))])

        # All pixels: damage after the rows of a crop is not seen, as the pixels there are not needed.
        def run(content: bytes = content) -> Any:
            return np.asarray(rgb(content))

        expected, seen = both(run)
        assert expected == seen


def damaged() -> bytes:
    """A JPEG with damage that Pillow decodes, and that is left to it."""
    draws = random.Random(9)
    while True:
        data = bytearray(PHOTO)
        for _ in range(3):
            data[draws.randrange(len(data) // 2, len(data) - 2)] = draws.randrange(255)
        try:
            ours.Jpeg(bytes(data)).dense((), ours._LARGER_FIRST)
        except ValueError:
            ours.uninstall()
            try:
                rgb(bytes(data)).load()
                return bytes(data)
            except OSError:
                pass
            finally:
                assert ours.install(0)


def test_a_damaged_file_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data = damaged()
    decoded = []
    load = ImageFile.ImageFile.load

    def counted(self: Any) -> Any:
        if type(self) is ours._PlainFile and self.tile:
            decoded.append(self)
        return load(self)

    def crops(image: Any) -> list[bytes]:
        many = [image.crop((at, at, at + 60, at + 50)).resize((40, 40)) for at in range(8)]
        return [image.tobytes(), np.asarray(image.crop((9, 9, 150, 110))).tobytes(), *(one.tobytes() for one in many), image.tobytes()]

    ours.uninstall()
    expected = crops(rgb(data))
    assert ours.install(0)
    monkeypatch.setattr(ImageFile.ImageFile, "load", counted)
    assert crops(rgb(data)) == expected
    counts = ours.counts()
    # The image, and the eight that were cropped of it before.
    assert counts["left"] == 9
    assert len(decoded) == 1
    # The file's place is not among the reasons, which would each be one of a kind.
    assert not any("at byte" in reason for reason in counts["reasons"])

    # What is changed later is no one else's.
    source = Image.open(io.BytesIO(data))
    first, second = source.convert("RGB"), source.convert("RGB")
    first.putpixel((0, 0), (1, 2, 3))
    assert second.tobytes() == expected[0]


@needs_torch
def test_tensors_of_a_damaged_file_are_tried_once() -> None:
    from torchvision.transforms import functional as F

    data = damaged()
    for convert in (F.to_tensor, F.pil_to_tensor):
        ours.uninstall()
        expected = convert(rgb(data)).numpy()
        assert ours.install(0)
        assert np.array_equal(convert(rgb(data)).numpy(), expected)
        assert ours.counts()["left"] == 1


def test_pixels_of_inks_are_a_reason() -> None:
    image = Image.open(io.BytesIO(photo(mode="CMYK")))
    image.resize((30, 30))
    image.tobytes()
    assert ours.counts()["reasons"] == {'pixels of mode CMYK were wanted before convert("RGB")': 1}


def test_drafts_at_an_eighth_are_pillows() -> None:
    for size, reasons in ((40, {}), (9, {"draft at an eighth of the size": 1})):
        ours._state.clear()
        Image.open(io.BytesIO(PHOTO)).thumbnail((size, size), reducing_gap=1.5)
        assert ours.counts()["reasons"] == reasons


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(PHOTO)
    image = Image.open(path)
    assert (image.filename, image.fp is None) == (str(path) if not isinstance(image.filename, Path) else path, False)
    part = image.crop((0, 0, 20, 20))
    assert image.fp is None, "read and closed, as Pillow does"
    path.unlink()
    expected = part.tobytes()
    path.write_bytes(PHOTO)
    ours.uninstall()
    assert Image.open(path).crop((0, 0, 20, 20)).tobytes() == expected
    file = path.open("rb")
    ours.install(0)
    Image.open(file).convert("RGB").resize((5, 5)).load()
    assert not file.closed, "a file that the script has opened stays open"
    file.close()


# Processes and threads.


@pytest.mark.parametrize("kind", ["remembered", "opened", "loaded"])
def test_threads_share_an_image(kind: str) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for _ in range(30):
            image = rgb().resize((90, 70), 2) if kind == "remembered" else Image.open(io.BytesIO(PHOTO))
            if kind == "loaded":
                image.load()
            found: list[Any] = []

            def use(image: Any = image, found: list[Any] = found) -> None:
                try:
                    part = np.asarray(image.crop((2, 2, 80, 60))).tobytes()
                    found.append((part, image.getpixel((1, 1)), image.convert("L").tobytes(), image.copy().tobytes()))
                except Exception as error:
                    found.append(repr(error))

            threads = [threading.Thread(target=use) for _ in range(5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
            assert len(set(found)) == 1 and len(found) == 5 and isinstance(found[0], tuple), found
    finally:
        sys.setswitchinterval(before)


@pytest.mark.skipif(not hasattr(__import__("signal"), "setitimer"), reason="this system has no timers")
def test_a_signal_handler_looks_at_images() -> None:
    ran = run_in(
        "import io, random, signal, time\nfrom PIL import Image\nimport stokehold.pillow\n"
        "b = io.BytesIO(); Image.new('RGB', (8, 8)).save(b, 'JPEG'); d = b.getvalue()\n"
        "def handler(*_):\n"
        "    Image.open(io.BytesIO(d)).convert('RGB').getpixel((0, 0))\n"
        "    signal.setitimer(signal.ITIMER_REAL, .0002 + random.random() * .0003)\n"
        "signal.signal(signal.SIGALRM, handler); signal.setitimer(signal.ITIMER_REAL, .0005)\n"
        "end = time.time() + 4\n"
        "while time.time() < end: Image.open(io.BytesIO(d)).convert('RGB').getpixel((0, 0))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0)\n"
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_long_chains_and_large_images_are_no_end() -> None:
    image = rgb().resize((20, 10))
    for _ in range(3000):
        image = image.transpose(0)
    ours.uninstall()
    assert image.tobytes() == rgb().resize((20, 10)).tobytes()
    ours.install(0)
    # Between the passes of a resize: Pillow's own affair.
    file = io.BytesIO()
    Image.new("RGB", (10, 60000)).save(file, "JPEG")
    assert type(rgb(file.getvalue()).resize((300, 100))) is ours._Remembered
    limited = run_in(
        "import io, resource\nfrom PIL import Image\nimport stokehold.pillow\n"
        f"tall = Image.open(io.BytesIO({file.getvalue()!r})).convert('RGB')\n"
        "own = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (own + (300 << 20), own + (300 << 20)))\n"
        "for size in ((300000, 100), (1000, 60000), (1, 1)):\n"
        "    try: tall.resize(size).getpixel((0, 0)); print('made')\n"
        "    except MemoryError: print('MemoryError')\n"
    )
    assert limited.returncode == 0 and limited.stdout.split()[-1] == "made", limited




@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_images_have_pixels_before_a_fork() -> None:
    """So that not every child makes them again."""
    image = rgb().resize((30, 20))
    # Whoever uses it is told.
    damaged = rgb(PHOTO[: len(PHOTO) - 400] + bytes(398) + PHOTO[-2:])
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=lambda: queue.put((type(image) is Image.Image, image.tobytes(), ours.counts()["made"])))
    child.start()
    is_plain, pixels, made = queue.get()
    child.join(30)
    assert child.exitcode == 0
    assert (is_plain, made) == (True, 0)
    assert pixels == image.tobytes()
    assert damaged.size == (150, 110)


def test_what_is_not_used_is_not_kept() -> None:
    images = [rgb().resize((30, 20)) for _ in range(50)]
    assert len(ours._pending) >= 50
    del images
    gc.collect()
    assert len(ours._pending) == 0


# Installation.


def test_uninstalling_gives_everything_back() -> None:
    ours.uninstall()
    before = (Image.OPEN["JPEG"][0], ImageOps.equalize, ImageEnhance.Contrast.__init__, ImageEnhance.Contrast.enhance, vars(ImageEnhance.Contrast).keys())
    before = (*before[:-1], set(before[-1]))
    ours.install(0)
    remembered = rgb().resize((30, 20))
    ours.uninstall()
    after = (Image.OPEN["JPEG"][0], ImageOps.equalize, ImageEnhance.Contrast.__init__, ImageEnhance.Contrast.enhance, set(vars(ImageEnhance.Contrast)))
    assert before == after
    ours.install(0)
    own = ImageOps.equalize = lambda image: image  # type: ignore[assignment]
    ours.uninstall()
    assert ImageOps.equalize is own, "what the script has put there stays"
    ImageOps.equalize = before[1]
    assert type(Image.open(io.BytesIO(PHOTO))) is JpegImagePlugin.JpegImageFile
    assert remembered.tobytes() == rgb().resize((30, 20)).tobytes(), "what was remembered stays usable"


def test_a_pillow_with_other_pixels_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    ours.uninstall()
    ours._state.tested = False
    real = ours._by_pillow
    monkeypatch.setattr(ours, "_by_pillow", lambda source, ops: real(source, ops).point(lambda level: level ^ 1))
    with pytest.warns(RuntimeWarning, match="it decodes other pixels"):
        assert not ours.install(0)
    assert not ours.install(0), "without another warning"
    ours._state.refused = False
    assert type(Image.open(io.BytesIO(PHOTO))) is JpegImagePlugin.JpegImageFile


def test_a_pillow_with_another_resize_keeps_its_resize(monkeypatch: pytest.MonkeyPatch) -> None:
    ours.uninstall()
    ours._state.tested = False
    monkeypatch.setattr(ours, "_LARGER_FIRST", not ours._LARGER_FIRST)
    with pytest.warns(RuntimeWarning, match="leaves resizes to Pillow"):
        assert ours.install(0)
    assert type(rgb().crop((0, 0, 9, 9))) is ours._Remembered
    assert type(rgb().resize((9, 9))) is Image.Image


@pytest.mark.parametrize("kind", ["resizes", "reductions", "drafts", "conversions", "colors", "transforms"])
def test_what_differs_is_left_to_pillow(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours._state, kind, False)
    draws = random.Random(kind)
    for number in range(40):
        data = photo(number, 120, 90, **draws.choice(KINDS))
        start = draws.randrange(8)
        chain = drawn_chain(draws, *started(data, start).size)
        expected, seen = both(lambda data=data, start=start, chain=chain: performed(started(data, start), chain))
        assert expected == seen, (start, chain)
    image = Image.open(io.BytesIO(PHOTO))
    if kind == "drafts":
        image.draft(None, (9, 9))
    size = image.size
    made: dict[str, Callable[[], Any]] = {
        "resizes": lambda: image.resize((9, 9)),
        "reductions": lambda: image.reduce(2),
        "drafts": lambda: image.crop((0, 0, 9, 9)),
        "conversions": lambda: image.convert("L"),
        "colors": lambda: ImageOps.invert(image.convert("RGB")),
        "transforms": lambda: image.transform(size, 0, (1, 0, 3, 0, 1, 2)),
    }
    assert type(made[kind]()) is Image.Image


def test_little_is_imported() -> None:
    begin = "import sys\nfrom PIL import Image, ImageEnhance, ImageOps, JpegImagePlugin\nImage.preinit()\nbefore = set(sys.modules)\nimport stokehold.pillow\n"
    ran = run_in(begin + "print(sorted({'numpy', 'torch', 'stokehold.transforms', 'stokehold._loader', 'json'} & (set(sys.modules) - before)))")
    assert (ran.stdout.strip(), ran.stderr) == ("[]", "")
    ran = run_in("import stokehold\nprint(stokehold.images.info.__name__, stokehold.errors.DataError is stokehold.DataError, set(stokehold.__all__) <= set(dir(stokehold)))\nfrom stokehold import *\nprint(decode.__name__, transforms.Compose.__name__)")
    assert ran.stdout.split() == ["info", "True", "True", "decode", "Compose"], ran.stderr


def test_a_difference_is_found_and_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong pixel: a crop that is remembered a column off."""
    ours.install(1)
    assert rgb().crop((0, 0, 9, 9)).tobytes()
    assert rgb().crop((0, 0, 9, 9)).getpixel((0, 0))
    assert ours.counts()["compared"] > 0
    image = rgb().crop((0, 0, 9, 9))
    real = ours._made

    def made(source: Any, ops: Any, make: Any, *rest: Any) -> Any:
        return real(source, ops, (lambda source, ops, order: make(source, (ops[0], ops[1] + 1, *ops[2:]), order)), *rest)

    monkeypatch.setattr(ours, "_made", made)
    with pytest.warns(RuntimeWarning, match="differs from Pillow's"):
        pixels = image.tobytes()
    assert type(Image.open(io.BytesIO(PHOTO))) is JpegImagePlugin.JpegImageFile
    assert pixels == rgb().crop((0, 0, 9, 9)).tobytes(), "the image itself is Pillow's"
    assert ours.counts()["different"] == 1
    assert not ours.install(0) and ours.counts()["different"] == 1, "Pillow's for good"


def test_a_factory_that_was_kept_opens_as_pillow() -> None:
    factory, accept = Image.OPEN["JPEG"]
    Image.register_open("JPEG", lambda *args: factory(*args), accept)
    ours.uninstall()
    try:
        assert type(Image.open(io.BytesIO(PHOTO))) is JpegImagePlugin.JpegImageFile
    finally:
        Image.register_open("JPEG", JpegImagePlugin.jpeg_factory, accept)


def run_in(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **environment})


def test_the_environment_decides() -> None:
    code = "import stokehold.pillow as p; print(p._state.factory is not None, p._state.every)"
    for setting, expected in (("", "True 0"), ("off", "False 0"), ("check", "True 100"), ("check:7", "True 7")):
        ran = run_in(code, STOKEHOLD_PILLOW=setting)
        assert (ran.returncode, ran.stdout.strip(), ran.stderr) == (0, expected, ""), ran
    ran = run_in(code, STOKEHOLD_PILLOW="chekc")
    assert "there are off, on, check and check:N" in ran.stderr


def test_another_plugin_of_jpegs_stays() -> None:
    code = (
        "from PIL import Image, JpegImagePlugin as J\n"
        "class Own(J.JpegImageFile): pass\n"
        "Image.register_open('JPEG', Own, Image.OPEN['JPEG'][1] if 'JPEG' in Image.OPEN else None)\n"
        "import warnings; warnings.simplefilter('error')\n"
        "try: import stokehold.pillow\n"
        "except RuntimeWarning as w: print(w)\n"
    )
    ran = run_in(code)
    assert "another plugin opens JPEGs here" in ran.stdout, ran


def test_an_end_of_the_interpreter_with_images() -> None:
    ran = run_in(
        "import io, stokehold.pillow\nfrom PIL import Image\n"
        "b = io.BytesIO(); Image.new('RGB', (50, 40)).save(b, 'JPEG')\n"
        "kept = [Image.open(b).convert('RGB').resize((9, 9)) for _ in range(3)]\n"
    )
    assert (ran.returncode, ran.stderr) == (0, "")


# torchvision.


@needs_torch
def test_another_default_type_of_floats_is_torchvisions() -> None:
    import torch
    from torchvision.transforms import functional as F

    data = photo(1, 180, 140)
    ours.uninstall()
    try:
        for kind in (torch.bfloat16, torch.float64, torch.float32):
            torch.set_default_dtype(kind)
            expected = F.to_tensor(rgb(data))
            assert ours.install(0)
            made = F.to_tensor(rgb(data))
            ours.uninstall()
            assert made.dtype is expected.dtype is kind and torch.equal(made, expected), kind
    finally:
        torch.set_default_dtype(torch.float32)


def test_memory_of_another_size_is_refused() -> None:
    jpeg = ours.Jpeg(photo(1, 18, 14))
    room = np.zeros(3 * 18 * 14, np.float16)
    for write in (jpeg.floats_to, jpeg.dense_to):
        with pytest.raises(ValueError, match="bytes at address"):
            write((), False, room.ctypes.data, room.nbytes)
    assert not room.any()


@needs_torch
def test_tensors_are_torchvisions() -> None:
    import torch
    from torchvision import transforms as T
    from torchvision.transforms import functional as F
    from torchvision.transforms import v2

    data = [photo(number, 180, 140) for number in range(6)]
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    end = [T.ToTensor(), T.Normalize(mean, std)]
    crop = [T.RandomResizedCrop(64), T.RandomHorizontalFlip()]
    pipelines: dict[str, Any] = {
        "crop": T.Compose([*crop, *end]),
        "middle": T.Compose([T.Resize(70), T.CenterCrop(64), *end]),
        "jitter": T.Compose([*crop, T.ColorJitter(0.8, 0.8, 0.8, 0.2), T.RandomGrayscale(0.5), *end]),
        "grey": T.Compose([T.Grayscale(), T.Resize(40), T.ToTensor(), T.Normalize(0.5, 0.25)]),
        "grey, normalised": T.Compose([T.RandomResizedCrop(64), T.Grayscale(), T.ToTensor(), T.Normalize([0.4], [0.3])]),
        "grey, in three": T.Compose([T.Grayscale(), T.ToTensor(), T.Normalize(mean, std)]),
        "grey, bytes": T.Compose([T.Grayscale(), T.PILToTensor()]),
        "padded": T.Compose([T.Pad((3, 5)), T.RandomCrop(64, padding=4, fill=(1, 2, 3)), T.ToTensor()]),
        "padded by v2": v2.Compose([v2.RandomCrop(150, pad_if_needed=True), v2.RandomZoomOut((9, 8, 7)), v2.PILToTensor()]),
        "rand": T.Compose([*crop, T.RandAugment(), *end]),
        "trivial": T.Compose([*crop, T.TrivialAugmentWide(), T.PILToTensor()]),
        "auto": T.Compose([*crop, T.AutoAugment(), T.ToTensor(), T.RandomErasing(0.5)]),
        "blurred": T.Compose([T.RandomRotation(20), T.GaussianBlur(5), T.RandomPerspective(), *end]),
        "v2": v2.Compose([v2.RandomResizedCrop(64), v2.ColorJitter(0.4, 0.4, 0.4, 0.1), v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std)]),
        "v2 first": v2.Compose([v2.ToImage(), v2.RandomResizedCrop(64, antialias=True), v2.ToDtype(torch.float32, scale=True)]),
        "tensors": T.Compose([*crop, T.ToTensor(), T.Normalize(torch.tensor(mean), torch.tensor(std))]),
        "tensors of doubles": T.Compose([*crop, T.ToTensor(), T.Normalize(torch.tensor(mean, dtype=torch.float64), torch.tensor(std, dtype=torch.float64))]),
        "inplace": T.Compose([T.Resize((32, 48)), T.ToTensor(), T.Normalize(mean, std, inplace=True)]),
        "numbers": lambda image: [F.to_tensor(image), F.normalize(F.to_tensor(image), 0.5, 0.5), F.normalize(F.to_tensor(image), [0.5], [0.25])],
        "no division": lambda image: F.normalize(F.to_tensor(image), [0.5] * 3, [0.0, 1.0, 1.0]),
        "doubles": lambda image: F.normalize(F.to_tensor(image).double(), mean, std),
    }
    for name, pipeline in pipelines.items():

        def run(pipeline: Any = pipeline) -> Any:
            random.seed(3)
            torch.manual_seed(3)
            made = [pipeline(rgb(one)) for one in data for _ in range(3)]
            return [plainly([each.numpy() for each in (one if isinstance(one, list) else [one])]) for one in made]

        expected, seen = both(run)
        assert expected == seen, name


@needs_torch
def test_a_loader_with_workers_sees_the_same(tmp_path: Path) -> None:
    import torch
    from torchvision import datasets
    from torchvision import transforms as T

    for number in range(12):
        path = tmp_path / f"class{number % 3}" / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(photo(number, 90, 80))
    transform = T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToTensor()])

    def epochs() -> Any:
        torch.manual_seed(1)
        loader = torch.utils.data.DataLoader(datasets.ImageFolder(str(tmp_path), transform), 5, shuffle=True, num_workers=2)
        return [[images.numpy(), labels.numpy()] for _ in range(2) for images, labels in loader]

    expected, seen = both(epochs)
    assert expected == seen


# stokehold run --fast-images.

SCRIPT = """
import hashlib, sys
import torch
from PIL import Image
from torchvision import datasets
from torchvision import transforms as T


class Own(torch.utils.data.Dataset):
    def __init__(self, paths):
        self.paths, self.transform = paths, T.Compose([T.RandomResizedCrop(48), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize([0.5] * 3, [0.2] * 3)])

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, number):
        return self.transform(Image.open(self.paths[number]).convert("RGB"))


if __name__ == "__main__":
    torch.manual_seed(0)
    context, digest = sys.argv[1], hashlib.sha256()
    # A worker that is spawned imports torch again.
    number = 1 if context == "spawn" else 2
    loader = torch.utils.data.DataLoader(Own(sys.argv[2:]), 4, shuffle=True, num_workers=number, multiprocessing_context=context)
    for _ in range(number):
        for batch in loader:
            digest.update(batch.numpy().tobytes())
    print(digest.hexdigest())
"""


@needs_torch
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_an_unchanged_script_computes_the_same(context: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    photos = [tmp_path / f"{number}.jpg" for number in range(8)]
    for number, path in enumerate(photos):
        path.write_bytes(photo(number, 90, 80))
    # A comment after its scan: Pillow's.
    photos[3].write_bytes(photo(3, 90, 80)[:-2] + b"\xff\xfe\x00\x05abc\xff\xd9")
    command = [sys.executable, str(script), context, *map(str, photos)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    plain = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    run = [sys.executable, "-m", "stokehold", "run", "--fast-images", "--"]
    fast = subprocess.run([*run, *command], capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert plain.returncode == fast.returncode == 0, (plain.stderr, fast.stderr)
    assert plain.stdout == fast.stdout
    count = 1 if context == "spawn" else 2
    assert re.search(rf"{8 * count} JPEGs were opened( in \d processes)?, and stokehold.pillow made {7 * count} images", fast.stderr), fast.stderr
    assert re.search(rf"Pillow made {count}: {count} because: .*segments that libjpeg may refuse \(at .*train.py:17\)", fast.stderr), fast.stderr


TRAINED = """
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)


class Trained(Own):
    def __len__(self):
        return 40 * len(self.paths)

    def __getitem__(self, number):
        if sys.argv[1] == "own":
            import stokehold.pillow

            assert stokehold.pillow.is_installed()
        return super().__getitem__(number % len(self.paths))


torch.manual_seed(0)
digest = hashlib.sha256()
loader = torch.utils.data.DataLoader(Trained(sys.argv[3:]), 8, shuffle=True, num_workers=int(sys.argv[2]))
for _ in range(2):
    for batch in loader:
        digest.update(batch.numpy().tobytes())
        model(torch.zeros(1, 8)).sum().backward()
        optimizer.step()
print(digest.hexdigest(), sorted(name for name in sys.modules if name.startswith("stokehold.")))
"""


@needs_torch
@pytest.mark.parametrize(("kind", "workers"), [("plain", 0), ("plain", 2), ("own", 0), ("own", 2)])
def test_a_recording_tells_what_fast_images_would_save(kind: str, workers: int, tmp_path: Path) -> None:
    """Some batches are fetched with fast images, and the script sees nothing of it; one that has them itself is left alone."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.split("if __name__")[0] + TRAINED)
    photos = [tmp_path / f"{number}.jpg" for number in range(8)]
    for number, path in enumerate(photos):
        path.write_bytes(photo(number, 640, 480))
    command = [sys.executable, str(script), kind, str(workers), *map(str, photos)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    plain = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    run = [sys.executable, "-m", "stokehold", "profile", "--fast-images", "-o", str(tmp_path / "run"), "--"]
    recorded = subprocess.run([*run, *command], capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert plain.returncode == recorded.returncode == 0, (plain.stderr, recorded.stderr)
    (digest,) = {ran.stdout.splitlines()[0].split()[0] for ran in (plain, recorded)}
    assert len(digest) == 64
    advised = subprocess.run([sys.executable, "-m", "stokehold", "advise", str(tmp_path / "run"), "--json"], capture_output=True, text=True, timeout=120, check=False)
    assert advised.returncode == 0, advised.stderr
    workload = json.loads(advised.stdout)["workload"]
    tried = [one for one in workload["alternatives"] if one["change"]["kind"] == "fast-images"]
    if kind == "own":
        assert tried == []
        return
    (one,) = tried
    # Photos of 640x480 of which crops of 48 pixels are made.
    assert 0.1 < one["loader"] < 0.9 and one["trainer"] == 1.0
    assert workload["script"]["fast_images_refused"] is None
    assert "'stokehold.pillow'" not in recorded.stdout


def test_counts_of_workers_that_are_ended_are_kept(tmp_path: Path) -> None:
    code = (
        "import io, os, sys, time\nimport stokehold.pillow as p\nfrom PIL import Image\np.install(0, sys.argv[1])\n"
        "b = io.BytesIO(); Image.new('RGB', (50, 40)).save(b, 'JPEG')\nend = time.monotonic() + 1.2\n"
        "while time.monotonic() < end: Image.open(b).convert('RGB').tobytes(); time.sleep(0.01)\nos._exit(3)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=60, check=False)
    (written,) = tmp_path.glob("images-*.json")
    assert '"made": 0' not in written.read_text()


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"mode": "L"}])
def test_segments_after_the_last_scan_are_read_as_by_pillow(options: dict[str, Any]) -> None:
    whole = photo(**options)
    frame = whole.index(b"\xff\xc2" if "progressive" in options else b"\xff\xc0")
    inserted = [
        b"\xff\xd8", b"\xff\xdb\x00\x01", b"\xff\xc4\x00\x05\x00\x01\x02", b"\xff\xb0", b"\xff\xdd\x00\x07\x00\x01\x00\x00\x00", b"\xff\xda\x00\x02",
        whole[frame : frame + 2 + int.from_bytes(whole[frame + 2 : frame + 4], "big")], b"\xff\xfe\x00\x05abc", b"\xff\xd0", b"\x00\x01", b"",
    ]  # fmt: skip
    for segment in inserted:
        data = whole[:-2] + segment + whole[-2:]
        for crop in ((0, 0, 20, 10), None):
            expected, seen = both(lambda data=data, crop=crop: rgb(data).crop(crop).tobytes())
            assert expected == seen, (segment, crop)


def test_counts_of_threads_are_kept(tmp_path: Path) -> None:
    code = (
        "import io, sys, threading\nimport stokehold.pillow as p\nfrom PIL import Image\np.install(0, sys.argv[1])\n"
        "b = io.BytesIO(); Image.new('RGB', (8, 8)).save(b, 'JPEG'); b = b.getvalue()\n"
        "def run():\n  for _ in range(1500): Image.open(io.BytesIO(b)).convert('RGB').tobytes(); p._state.next_write = 0\n"
        "all = [threading.Thread(target=run) for _ in range(8)]\n[one.start() for one in all]; [one.join() for one in all]\n"
        "assert p._state.folder\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=120, check=True)
    (written,) = tmp_path.glob("images-*.json")
    # Threads may lose some of each other's.
    assert json.loads(written.read_text())["asked"] > 11000


def test_the_time_that_is_told_is_that_of_the_script() -> None:
    data = [photo(number, 500, 400) for number in range(8)]

    def cpu(every: Optional[int]) -> float:
        ours.uninstall()
        if every is not None:
            assert ours.install(every)
        for image in data:
            Image.open(io.BytesIO(image)).convert("RGB").crop((20, 30, 400, 380)).resize((224, 224)).tobytes()
        began = time.thread_time()
        for _ in range(10):
            for image in data:
                Image.open(io.BytesIO(image)).convert("RGB").crop((20, 30, 400, 380)).resize((224, 224)).tobytes()
        return time.thread_time() - began

    plain, fast = min(cpu(None) for _ in range(3)), min(cpu(0) for _ in range(3))
    cpu(4)
    counts = ours.counts()
    assert counts["compared"] >= 20
    ratio = counts["library_seconds"] / counts["own_seconds"]
    assert 0.6 < ratio / (plain / fast) < 1.5, (ratio, plain, fast)


@needs_torch
def test_a_script_without_images_is_told(tmp_path: Path) -> None:
    run = [sys.executable, "-m", "stokehold", "run", "--fast-images", "--", sys.executable, "-c", "import torch"]
    ran = subprocess.run(run, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0
    assert "nothing was changed: the script imported neither Pillow nor" in ran.stderr


@needs_torch
def test_transforms_are_still_converted() -> None:
    """What this module puts in a function's place is none of the script's."""
    from torchvision import transforms as T

    from stokehold.transforms import from_torchvision

    compose = T.Compose([T.RandomResizedCrop(64), T.RandomHorizontalFlip(), T.ColorJitter(0.4), T.ToTensor(), T.Normalize([0.5] * 3, [0.5] * 3)])
    compose(rgb())
    assert ours._state.torchvision
    assert len(from_torchvision(compose).transforms) == 5


@needs_torch
def test_torch_traces_scripts_and_pickles_as_before() -> None:
    import torch
    from torchvision import transforms as T
    from torchvision.transforms import functional as F

    ours.uninstall()
    captured = F.to_tensor
    ours.install(0)
    kept = T.Compose([T.Lambda(captured)])
    T.Compose([T.ToTensor(), T.Normalize([0.5] * 3, [0.5] * 3)])(rgb())
    assert ours._state.torchvision and F.to_tensor is not captured
    values = torch.rand(3, 4, 4)
    expected = (values - 0.5) / 0.5
    normalize = T.Normalize([0.5] * 3, [0.5] * 3)
    assert torch.equal(torch.jit.trace(normalize, torch.rand(3, 4, 4))(values), expected)
    assert torch.equal(torch.jit.script(normalize)(values), expected)
    assert torch.equal(torch.vmap(lambda one: F.normalize(one, [0.5] * 3, [0.5] * 3))(values[None])[0], expected)
    for function in (captured, F.to_tensor, F.pil_to_tensor, ImageOps.invert):
        assert pickle.loads(pickle.dumps(function)) is function
    again = pickle.loads(pickle.dumps(kept))
    assert torch.equal(again(rgb()), kept(rgb()))
    ours.uninstall()
    assert captured.__module__ == "torchvision.transforms.functional" and pickle.loads(pickle.dumps(captured)) is F.to_tensor


@needs_torch
def test_tensors_are_compared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from torchvision import transforms as T
    from torchvision.transforms import functional as F

    ours.install(1)
    compose = T.Compose([T.ToTensor(), T.Normalize([0.5] * 3, [0.2] * 3)])
    for function in (compose, F.to_tensor, F.pil_to_tensor):
        before = ours.counts()["compared"]
        function(rgb())
        assert (ours.counts()["compared"], ours.counts()["different"]) == (before + 1, 0)
    real = ours._made
    monkeypatch.setattr(ours, "_made", lambda source, ops, make, *rest: real(source, ops, lambda *given: make(*given) + 1, *rest))
    with pytest.warns(RuntimeWarning, match="differs from Pillow's"):
        made = compose(rgb())
    monkeypatch.undo()
    assert torch.equal(made, T.Compose([T.ToTensor(), T.Normalize([0.5] * 3, [0.2] * 3)])(rgb()))


@needs_torch
def test_functions_of_the_script_are_called() -> None:
    from torchvision import transforms as T
    from torchvision.transforms import functional as F

    compose = T.Compose([T.ToTensor(), T.Normalize([0.5] * 3, [0.2] * 3)])
    compose(rgb())
    real, called = F.normalize, []
    F.normalize = lambda *values, **names: called.append(1) or real(*values, **names)
    try:
        compose(rgb())
    finally:
        F.normalize = real
    assert called == [1]


def test_wrong_arguments_are_refused_as_pillow_refuses_them(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(photo(3, 300, 200))

    def half_drafted() -> Any:
        image: Any = Image.open(path)
        with contextlib.suppress(ZeroDivisionError):
            image.draft("YCbCr", (50, 0))
        return image.copy().tobytes()

    def drafted_after_a_wrong_colour() -> Any:
        image: Any = Image.open(path)
        with contextlib.suppress(ValueError):
            ImageOps.expand(image, 5, "nosuch")
        image.draft("RGB", (100, 100))
        return image.size

    def padded(size: Any) -> Any:
        return ImageOps.pad(Image.open(path), size).size

    sizes: list[Any] = [(178.5, 74), (100.0, 50), (100, 50), (1, 2, 3)]
    for call in [half_drafted, drafted_after_a_wrong_colour, *(functools.partial(padded, size) for size in sizes)]:
        expected, seen = both(functools.partial(outcome, call))
        assert expected == seen, call
