"""Operations by torchvision's names; what a converted Compose draws and makes, with torchvision as the oracle."""

from __future__ import annotations

import json

import numpy as np
import pytest
from conftest import HAS_TORCH, picture, plain, write_png

import stokehold
from stokehold import transforms as T

needs_torchvision = pytest.mark.skipif(not HAS_TORCH, reason="torchvision is not installed in this environment")
FLOAT = [T.ToTensor(), T.Normalize(T.MEAN, T.STD)]


def drawn(compose, samples, width=500, height=375):
    """The steps of many samples."""
    return [json.loads(compose._pipeline.draw(1, 0, number, width, height)) for number in range(samples)]


def of(steps, kind):
    return [step for step in steps if step["type"] == kind]


def alike(ours, theirs):
    """Kolmogorov and Smirnov: at fixed seeds this holds or does not; by chance it would fail once in 10,000 times."""
    ours, theirs = np.sort(np.asarray(ours, float)), np.sort(np.asarray(theirs, float))
    both = np.concatenate([ours, theirs])
    below = [np.searchsorted(side, both, "right") / len(side) for side in (ours, theirs)]
    return np.abs(below[0] - below[1]).max() < 2.23 * np.sqrt(1 / len(ours) + 1 / len(theirs))


def test_alike_tells_distributions_apart():
    random = np.random.default_rng(0)
    assert alike(random.uniform(-5, 5, 4000), random.uniform(-5, 5, 4000))
    assert not alike(random.uniform(-5, 5, 4000), random.uniform(-5, 6, 4000))
    assert not alike(random.uniform(-5, 5, 4000), random.normal(0, 2.9, 4000))


def test_operations_are_what_files_say():
    compose = T.Compose([T.RandomCrop(32, padding=4, fill=(1, 2, 3)), T.RandomHorizontalFlip(0.3), *FLOAT])
    assert [operation["type"] for operation in json.loads(compose.to_json())["op"]] == [
        "RandomCrop", "RandomHorizontalFlip", "ToFloat", "Normalize",
    ]  # fmt: skip
    assert compose.size == (32, 32) and "RandomHorizontalFlip(p=0.3)" in repr(compose)
    assert T.RandomCrop(3) == T.RandomCrop((3, 3)) == T.RandomCrop([3]) != T.RandomCrop(4)
    repeated = T.Compose([T.Repeat(3, [T.RandomRotation(5)]), T.CenterCrop(8), T.ToTensor()])
    assert len(of(drawn(repeated, 1)[0], "Rotate")) == 3
    assert [T.preset(name).size for name in T.PRESETS] == [(224, 224)] * 4


def test_presets_and_files_are_pipelines(folder, tmp_path):
    file = tmp_path / "mine.json"
    file.write_text(T.Compose([T.CenterCrop(9), T.ToTensor()]).to_json())
    for pipeline, size in [("imagenet-train", 224), (file, 9), ([T.CenterCrop(7), T.ToTensor()], 7)]:
        assert stokehold.Loader(folder, pipeline).size == (size, size)
    for wrong, message in [("imagenet", "no preset is called 'imagenet'"), (tmp_path / "none.toml", "cannot read"), (5, "int")]:
        with pytest.raises(stokehold.StokeholdError, match=message):
            stokehold.Loader(folder, wrong)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: [T.RandomHorizontalFlip(2), T.CenterCrop(3), T.ToTensor()], r"operation 1 .*p = 2; allowed: 0 to 1"),
        (lambda: [T.CenterCrop(3)], "does not end in floats"),
        (lambda: [T.RandomRotation(9, expand=True), T.ToTensor()], "different sizes"),
        (lambda: [T.CenterCrop(3), T.Normalize(T.MEAN, T.STD)], "works on floats"),
        (lambda: [T.CenterCrop(3), T.ToTensor(), T.RandomVerticalFlip()], "works on bytes"),
        (lambda: [T.CenterCrop(0)], "allowed: 1 to"),
        (lambda: [T.CenterCrop(2.5)], "size=2.5: must be a whole number"),
        (lambda: [T.Resize(5, "area")], "interpolation=.area.: there are .nearest., .lanczos."),
        (lambda: [T.Resize(5, antialias=False)], "always antialiased"),
        (lambda: [T.Grayscale(1)], "num_output_channels=1"),
        (lambda: [T.RandomRotation("wide")], "degrees='wide': must be"),
        (lambda: [T.RandomRotation(5, fill=300)], "fill|did not match"),
        (lambda: [T.Normalize([1, 2], T.STD)], "mean=.*three numbers"),
        (lambda: [len], "is no operation of stokehold.transforms"),
    ],
)
def test_parameters_out_of_range(make, message):
    with pytest.raises(stokehold.OptionError, match=message):
        T.Compose(make())


@needs_torchvision
@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("load", [1, 12])
def test_the_published_load_has_the_same_distribution(version, load):
    import torch
    from torchvision import transforms as v1
    from torchvision.transforms import v2

    V = {"v1": v1, "v2": v2}[version]
    repeated = [V.RandomHorizontalFlip(), V.RandomVerticalFlip(), V.RandomRotation(5)] * load
    if version == "v1":
        end = [V.ToTensor(), V.Normalize(T.MEAN, T.STD)]
    else:
        end = [V.ToImage(), V.ToDtype(torch.float32, scale=True), V.Normalize(T.MEAN, T.STD)]
    converted = T.from_torchvision(V.Compose([*repeated, V.RandomResizedCrop(224), *end]))
    assert [type(one).__name__ for one in converted.transforms] == [
        *["RandomHorizontalFlip", "RandomVerticalFlip", "RandomRotation"] * load, "RandomResizedCrop", "ToTensor", "Normalize",
    ]  # fmt: skip
    samples = drawn(converted, 4000 // load)
    torch.manual_seed(0)
    angles = [v1.RandomRotation.get_params([-5.0, 5.0]) for _ in range(4000)]
    assert alike([step["angle"] for steps in samples for step in of(steps, "Rotate")], angles)
    for kind in ("HorizontalFlip", "VerticalFlip"):
        share = np.mean([len(of(steps, kind)) / load for steps in samples])
        assert abs(share - 0.5) < 4 * 0.5 / np.sqrt(len(samples) * load)
    image = torch.empty(3, 375, 500)
    theirs = [v1.RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(4000)]
    crops = [of(steps, "Crop")[0] for steps in samples]
    for place, name in enumerate(("top", "left", "height", "width")):
        assert alike([crop[name] for crop in crops], [params[place] for params in theirs]), name
    # Rotations of one sample are drawn one by one: those that follow each other are not related.
    turns = [[step["angle"] for step in of(steps, "Rotate")] for steps in samples]
    pairs = [pair for angles in turns for pair in zip(angles, angles[1:])]
    if pairs:
        assert abs(np.corrcoef(np.array(pairs).T)[0, 1]) < 4 / np.sqrt(len(pairs))


@needs_torchvision
def test_the_other_draws_have_the_same_distributions():
    import torch
    from torchvision import transforms as V

    torch.manual_seed(0)
    image = torch.empty(3, 375, 500)
    converted = T.from_torchvision(
        V.Compose(
            [
                V.ColorJitter(0.4, (0.5, 2.0), 0.3, 0.1),
                V.GaussianBlur(5, (0.3, 2.5)),
                V.RandomCrop((120, 200), padding=(3, 5, 7, 9)),
                V.ToTensor(),
                V.RandomErasing(p=0.7, scale=(0.05, 0.3)),
            ]
        )
    )
    samples = drawn(converted, 4000)
    jitters = [
        V.ColorJitter.get_params((0.6, 1.4), (0.5, 2.0), (0.7, 1.3), (-0.1, 0.1)) for _ in range(4000)
    ]
    for place, (kind, key) in enumerate(
        [("Brightness", "factor"), ("Contrast", "factor"), ("Saturation", "factor"), ("Hue", "shift")]
    ):
        assert alike([of(steps, kind)[0][key] for steps in samples], [jitter[place + 1] for jitter in jitters]), kind
    names = ["Brightness", "Contrast", "Saturation", "Hue"]
    orders = [[names.index(step["type"]) for step in steps if step["type"] in names] for steps in samples]
    for place in range(4):
        assert alike([order[place] for order in orders], [int(jitter[0][place]) for jitter in jitters])
    assert alike([of(steps, "GaussianBlur")[0]["sigma"] for steps in samples],
                 [V.GaussianBlur.get_params(0.3, 2.5) for _ in range(4000)])  # fmt: skip
    padded = torch.empty(3, 375 + 14, 500 + 10)
    theirs = [V.RandomCrop.get_params(padded, (120, 200)) for _ in range(4000)]
    for place, name in enumerate(("top", "left", "height", "width")):
        assert alike([of(steps, "Crop")[0][name] for steps in samples], [params[place] for params in theirs]), name
    erased = [of(steps, "Erase")[0] for steps in samples if of(steps, "Erase")]
    assert abs(len(erased) / 4000 - 0.7) < 4 * np.sqrt(0.7 * 0.3 / 4000)
    theirs = [V.RandomErasing.get_params(image[:, :120, :200], (0.05, 0.3), (0.3, 3.3), [0]) for _ in range(4000)]
    for place, name in enumerate(("top", "left", "height", "width")):
        assert alike([one[name] for one in erased], [params[place] for params in theirs]), name


@needs_torchvision
@pytest.mark.parametrize("load", [1, 12])
def test_pixels_with_the_same_draws(load, tmp_path):
    """torchvision, on PIL images and with the numbers that were drawn here, makes the same pixels within a level."""
    from PIL import Image
    from torchvision import transforms as V
    from torchvision.transforms import functional as F

    names = {mode.value: mode for mode in V.InterpolationMode}
    compose = V.Compose(
        [V.RandomHorizontalFlip(), V.RandomVerticalFlip(), V.RandomRotation(5)] * load
        + [V.ColorJitter(0.3, 0.3, 0.3, 0.1), V.RandomResizedCrop(40), V.ToTensor(), V.Normalize(T.MEAN, T.STD)]
    )
    data = [(tmp_path / f"{number}.png", 0) for number in range(16)]
    # Smooth pictures: of noise a shift of hue by one level of rounding is visible.
    pixels = [np.asarray(Image.fromarray(picture(n, 6, 7)).resize((120, 90), Image.Resampling.BICUBIC)) for n in range(16)]
    for (path, _), content in zip(data, pixels):
        write_png(path, content)
    loader = stokehold.Loader(data, compose, batch_size=16, shuffle=False, seed=2, executor="per-op")
    loader.set_epoch(3)
    ((images, _),) = [tuple(plain(part) for part in batch) for batch in loader]
    do = {
        "HorizontalFlip": lambda im, s: F.hflip(im),
        "VerticalFlip": lambda im, s: F.vflip(im),
        "Rotate": lambda im, s: F.rotate(im, s["angle"], names[s["interpolation"]], s["expand"], s["center"], s["fill"]),
        "Brightness": lambda im, s: F.adjust_brightness(im, s["factor"]),
        "Contrast": lambda im, s: F.adjust_contrast(im, s["factor"]),
        "Saturation": lambda im, s: F.adjust_saturation(im, s["factor"]),
        "Hue": lambda im, s: F.adjust_hue(im, s["shift"]),
        "Crop": lambda im, s: F.crop(im, s["top"], s["left"], s["height"], s["width"]),
        "Resize": lambda im, s: F.resize(im, [s["height"], s["width"]], names[s["interpolation"]]),
        "ToFloat": lambda im, s: F.to_tensor(im),
        "Normalize": lambda im, s: F.normalize(im, s["mean"], s["std"]),
    }
    for number, content in enumerate(pixels):
        expected = Image.fromarray(content)
        for step in loader.draw(3, number, 120, 90):
            expected = do[step["type"]](expected, step)
        difference = np.abs(images[number] - plain(expected)) * np.reshape(T.STD, (3, 1, 1)) * 255
        assert difference.max() < 1.01, (number, difference.max())


@needs_torchvision
def test_the_transforms_of_weights_are_converted(tmp_path):
    """`weights.transforms()` is what transfer learning uses; torchvision's own, on PIL images, makes the same pixels within a level."""
    from PIL import Image
    from torchvision import models

    for weights, resize in [
        (models.ResNet18_Weights.DEFAULT, T.Resize(256)),
        (models.ResNet50_Weights.DEFAULT, T.Resize(232)),
        (models.ViT_B_16_Weights.IMAGENET1K_SWAG_E2E_V1, T.Resize(384, "bicubic")),
    ]:
        theirs = weights.transforms()
        crop = T.CenterCrop(theirs.crop_size)
        converted = T.from_torchvision(theirs)
        assert converted.transforms == [resize, crop, T.ToTensor(), T.Normalize(theirs.mean, theirs.std)]
        content = np.asarray(Image.fromarray(picture(1, 6, 7)).resize((340, 300), Image.Resampling.BICUBIC))
        write_png(tmp_path / "picture.png", content)
        loader = stokehold.Loader([(tmp_path / "picture.png", 0)], theirs, batch_size=1, executor="per-op")
        ((images, _),) = [tuple(plain(part) for part in batch) for batch in loader]
        difference = np.abs(images[0] - plain(theirs(Image.fromarray(content)))) * np.reshape(T.STD, (3, 1, 1)) * 255
        assert difference.max() < 1.01, (weights, difference.max())


@needs_torchvision
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_colours_and_policies_are_converted(version):
    from torchvision import transforms as v1
    from torchvision.transforms import v2

    V = {"v1": v1, "v2": v2}[version]
    for ours, theirs in [
        (T.RandomGrayscale(), V.RandomGrayscale()),
        (T.RandomGrayscale(0.3), V.RandomGrayscale(0.3)),
        (T.RandomInvert(), V.RandomInvert()),
        (T.RandomPosterize(3), V.RandomPosterize(3)),
        (T.RandomSolarize(192.5, 0.2), V.RandomSolarize(192.5, 0.2)),
        (T.RandomAutocontrast(0.7), V.RandomAutocontrast(0.7)),
        (T.RandomEqualize(), V.RandomEqualize()),
        (T.RandomAdjustSharpness(2), V.RandomAdjustSharpness(2)),
        (T.AutoAugment(), V.AutoAugment()),
        (T.AutoAugment("svhn", fill=(1, 2, 3)), V.AutoAugment(v1.AutoAugmentPolicy.SVHN, fill=[1, 2, 3])),
        (T.RandAugment(), V.RandAugment()),
        (T.RandAugment(1, 5, 11, "bilinear"), V.RandAugment(1, 5, 11, v1.InterpolationMode.BILINEAR)),
        (T.TrivialAugmentWide(), V.TrivialAugmentWide()),
        (T.TrivialAugmentWide(12, fill=9), V.TrivialAugmentWide(12, fill=9)),
        (T.AugMix(), V.AugMix()),
        (T.AugMix(5, 2, 4, 0.5, False, "nearest", 7), V.AugMix(5, 2, 4, 0.5, False, v1.InterpolationMode.NEAREST, 7)),
        (T.RandomAffine((-5, 5)), V.RandomAffine(5)),
        (
            T.RandomAffine((-9, 3), (0.1, 0.2), (0.5, 2), (-1, 2, -3, 4), "bicubic", (1, 2, 3), (4, 5)),
            V.RandomAffine((-9, 3), (0.1, 0.2), (0.5, 2), (-1, 2, -3, 4), v1.InterpolationMode.BICUBIC, (1, 2, 3), (4, 5)),
        ),
        (T.RandomAffine((0, 0), shear=(-10, 10)), V.RandomAffine(0, shear=10)),
        (T.RandomPerspective(), V.RandomPerspective()),
        (T.RandomPerspective(0.2, 0.9, "nearest", 8), V.RandomPerspective(0.2, 0.9, v1.InterpolationMode.NEAREST, 8)),
        (T.RandomApply([T.RandomInvert(), T.Grayscale(3)], 0.3), V.RandomApply([V.RandomInvert(), V.Grayscale(3)], 0.3)),
        (
            T.RandomOrder([T.RandomInvert(), T.Repeat(1, [T.RandomInvert(0.1), T.RandomEqualize()])]),
            V.RandomOrder([V.RandomInvert(), V.Compose([V.RandomInvert(0.1), V.RandomEqualize()])]),
        ),
        (
            T.RandomChoice([T.RandomInvert(), T.RandomEqualize()], [0.25, 0.75]),
            V.RandomChoice([V.RandomInvert(), V.RandomEqualize()], p=[0.25, 0.75]),
        ),
    ]:
        assert T.from_torchvision([theirs, V.CenterCrop(4), V.ToTensor()]).transforms[0] == ours, theirs
    if version == "v2":
        import PIL.Image
        import torch
        from torchvision import tv_tensors

        end = [V.CenterCrop(4), V.ToDtype(torch.float32, scale=True)]
        of_image = {tv_tensors.Image: 7, PIL.Image.Image: 3, tv_tensors.Mask: 255}
        for before, fill, expected in ([V.ToImage()], of_image, 7), ([V.ToImage()], {"others": 7}, 7), ([V.PILToTensor()], {torch.Tensor: 5}, 5):
            assert T.from_torchvision([*before, V.Pad(2, fill=fill), *end]).transforms[0] == T.Pad(2, expected), fill
        assert T.from_torchvision([V.Pad(2, fill=of_image), V.ToImage(), *end]).transforms[0] == T.Pad(2, 3)
        for fill, match in (({"others": 0, tv_tensors.Mask: 0}, "filled with 255"), ({tv_tensors.Image: 255}, "no value for PIL.Image.Image")):
            with pytest.raises(stokehold.OptionError, match=match):
                T.from_torchvision([V.Pad(2, fill=fill), V.CenterCrop(4), V.ToTensor()])
    choice = T.from_torchvision([V.RandomChoice([V.RandomInvert(), V.RandomEqualize()]), V.CenterCrop(4), V.ToTensor()])
    assert len(set(choice.transforms[0].as_dict().get("p") or [0])) == 1, "every one as often as the others"
    with pytest.raises(stokehold.OptionError, match=r"bits = 0; allowed: 1 to 8"):
        T.from_torchvision([V.RandomPosterize(0), V.CenterCrop(4), V.ToTensor()])


@needs_torchvision
def test_what_only_v2_has_is_converted():
    from torchvision.transforms import v2

    bicubic = v2.InterpolationMode.BICUBIC
    for ours, theirs in [
        (T.RandomResize(20, 40), v2.RandomResize(20, 40)),
        (T.RandomShortestSize([20, 30], 90, "bicubic"), v2.RandomShortestSize([20, 30], 90, bicubic)),
        (T.RandomShortestSize([20]), v2.RandomShortestSize(20)),
        (T.ScaleJitter((40, 50)), v2.ScaleJitter((40, 50))),
        (T.ScaleJitter((40, 50), (0.5, 1.5), "bicubic"), v2.ScaleJitter((40, 50), (0.5, 1.5), bicubic)),
        (T.RandomZoomOut(), v2.RandomZoomOut()),
        (T.RandomZoomOut((1, 2, 3), (1.5, 2), 0.7), v2.RandomZoomOut((1, 2, 3), (1.5, 2), 0.7)),
        (T.RandomPhotometricDistort(), v2.RandomPhotometricDistort()),
        (
            T.RandomPhotometricDistort((0.5, 2), (0.6, 3), (0.7, 4), (-0.1, 0.2), 0.9),
            v2.RandomPhotometricDistort((0.5, 2), (0.6, 3), (0.7, 4), (-0.1, 0.2), 0.9),
        ),
        (T.RandomChannelPermutation(), v2.RandomChannelPermutation()),
    ]:
        assert T.from_torchvision([v2.RGB(), theirs, v2.CenterCrop(4), v2.ToTensor()]).transforms[0] == ours, theirs
    noisy = T.from_torchvision([v2.CenterCrop(4), v2.ToTensor(), v2.GaussianNoise(0.1, 0.2, False), v2.ToPureTensor()])
    assert noisy.transforms[2:] == [T.GaussianNoise(0.1, 0.2, False)]
    with pytest.raises(stokehold.OptionError, match="antialias=False"):
        T.from_torchvision([v2.ToImage(), v2.ScaleJitter((40, 50), antialias=False)])


@needs_torchvision
def test_a_mirrored_border_may_be_wider_than_the_image(tmp_path):
    from PIL import Image
    from torchvision import transforms as V

    for height, width in [(4, 4), (1, 5), (3, 1), (1, 1)]:
        path = tmp_path / f"{height}x{width}.png"
        write_png(path, picture(height, height, width))
        for mode in ("reflect", "symmetric", "edge"):
            theirs = np.asarray(V.CenterCrop(20)(V.Pad([10, 17, 12, 9], padding_mode=mode)(Image.open(path).convert("RGB"))))
            ours = T.Compose([T.Pad([10, 17, 12, 9], padding_mode=mode), T.CenterCrop(20), T.ToTensor()])
            for executor in ("per-op", "fused"):
                loader = stokehold.Loader([(path, 0)], ours, batch_size=1, dtype="uint8", bad_images="error", executor=executor)
                ((images, _),) = loader
                assert (plain(images)[0].transpose(1, 2, 0) == theirs).all(), (height, width, mode, executor)


@needs_torchvision
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_every_filter_of_resizes_is_pillows(version, tmp_path):
    import torch
    from PIL import Image
    from stokehold._torchvision import not_of_tensors
    from torchvision import transforms as v1
    from torchvision.transforms import v2

    V = {"v1": v1, "v2": v2}[version]
    path = tmp_path / "picture.png"
    write_png(path, picture(3, 90, 70))
    for mode in v1.InterpolationMode:
        for size in [(30, 31), 100]:
            theirs = V.Compose([V.Resize(size, mode), V.CenterCrop(28), V.PILToTensor()])
            expected = plain(theirs(Image.open(path).convert("RGB"))).astype(int)
            ours = T.from_torchvision([*theirs.transforms[:2], V.ToTensor()])
            for executor, most in [("per-op", 0), ("fused", 255)]:
                loader = stokehold.Loader([(path, 0)], ours, batch_size=1, dtype="uint8", bad_images="error", executor=executor)
                ((images, _),) = loader
                apart = np.abs(plain(images)[0].astype(int) - expected)
                assert apart.max() <= most and apart.mean() < 1, (mode, size, executor, apart.max(), apart.mean())
        if mode not in (mode.NEAREST, mode.NEAREST_EXACT, mode.BILINEAR, mode.BICUBIC):
            with pytest.raises(stokehold.OptionError, match="there are 'nearest', 'bilinear' and 'bicubic'"):
                T.from_torchvision([V.RandomRotation(9, interpolation=mode), V.CenterCrop(4), V.ToTensor()])
    # torchvision's tensors have no such filters, and take other pixels of the nearest.
    for mode, found in [("NEAREST_EXACT", ["Resize"]), ("BICUBIC", []), ("NEAREST", ["Resize"]), ("LANCZOS", ["Resize"]), ("BOX", ["Resize"])]:
        resize = v2.Resize(30, v2.InterpolationMode[mode])
        assert not_of_tensors(v2.Compose([v2.ToImage(), resize, v2.CenterCrop(9), v2.ToDtype(torch.float32, scale=True)])) == found, mode


@needs_torchvision
@pytest.mark.parametrize("padding", [4, [4], (4, 0), (1, 2, 3, 4)])
def test_paddings_of_crops_have_torchvisions_sides(padding, tmp_path):
    """In v1 and v2, which keep them in different orders. The crop is as large as the padded image, so it is the same each time."""
    from PIL import Image
    from torchvision import transforms as v1
    from torchvision.transforms import v2

    path = tmp_path / "picture.png"
    write_png(path, picture(3, 30, 40))
    across, down = {1: (8, 8), 2: (8, 0), 4: (4, 6)}[len(padding) if isinstance(padding, (list, tuple)) else 1]
    for V, fill in [(v1, 7), (v2, 7), (v2, {torch_image(): 7, "others": 7})]:
        for transform in [V.RandomCrop((30 + down, 40 + across), padding, fill=fill), V.Pad(padding, fill)]:
            if V is v1 and isinstance(transform, v1.Pad) and padding == [4]:
                continue  # torchvision refuses that itself
            expected = np.asarray(transform(Image.open(path).convert("RGB")))
            ours = T.from_torchvision([transform, V.CenterCrop(expected.shape[:2]), V.ToTensor()])
            loader = stokehold.Loader([(path, 0)], ours, batch_size=1, dtype="uint8", bad_images="error", executor="per-op")
            ((images, _),) = loader
            assert (plain(images)[0].transpose(1, 2, 0) == expected).all(), (transform, ours)


def torch_image():
    from torchvision import tv_tensors

    return tv_tensors.Image


@needs_torchvision
def test_resizes_of_tensors_that_are_not_antialiased_are_refused():
    from torchvision import transforms as v1
    from torchvision.transforms import v2

    end = [v2.CenterCrop(4)]
    for first in ([v2.ToImage()], [v1.PILToTensor()], [v2.ToImage(), v2.RandomHorizontalFlip()]):
        for resize in (v2.Resize(9, antialias=None), v2.RandomResizedCrop(9, antialias=None), v2.RandomShortestSize([9], antialias=None)):
            with pytest.raises(stokehold.OptionError, match="antialias=None, and resizes tensors"):
                T.from_torchvision([*first, resize, *end, v2.ToDtype(torch_float(), scale=True)])
    with pytest.raises(stokehold.OptionError, match="antialias=None"):
        T.from_torchvision([v1.ToTensor(), v1.Resize(9, antialias=None), v1.CenterCrop(4)])
    for antialias in (None, False):
        # PIL images are antialiased whatever it says.
        assert T.from_torchvision([v1.Resize(9, antialias=antialias), v1.CenterCrop(4), v1.ToTensor()]).transforms[0] == T.Resize(9)


@needs_torchvision
def test_pipelines_that_end_in_bytes_make_bytes(tmp_path):
    import torch
    from PIL import Image
    from torchvision import transforms as v1
    from torchvision.transforms import v2

    path = tmp_path / "picture.png"
    write_png(path, picture(3, 30, 40))
    for transform in (
        v1.Compose([v1.Resize((20, 20)), v1.PILToTensor()]),
        v2.Compose([v2.Resize((20, 20)), v2.ToImage()]),
        v2.Compose([v2.Resize((20, 20)), v2.ToImage(), v2.ToDtype(torch.uint8, scale=True)]),
    ):
        ((images, _),) = stokehold.Loader([(path, 0)], transform, batch_size=1, executor="per-op")
        expected = np.asarray(transform(Image.open(path).convert("RGB")))
        assert plain(images).dtype == np.uint8 and (plain(images)[0] == expected).all(), transform
        with pytest.raises(stokehold.OptionError, match="the transforms end in bytes; end them with ToTensor"):
            stokehold.Loader([(path, 0)], transform, batch_size=1, dtype="float32")


@needs_torchvision
def test_numbers_of_normalize_are_those_of_channels():
    import torch
    from torchvision import transforms as v1

    expected = T.Normalize([0.5] * 3, [0.25] * 3)
    for mean, std in [(0.5, 0.25), ([0.5], [0.25]), (torch.full((3, 1, 1), 0.5), torch.tensor(0.25)), (np.full(3, 0.5), (0.25, 0.25, 0.25))]:
        assert T.from_torchvision([v1.CenterCrop(4), v1.ToTensor(), v1.Normalize(mean, std)]).transforms[-1] == expected, (mean, std)


def torch_float():
    import torch

    return torch.float32


@needs_torchvision
def test_conversions_that_change_nothing_are_left_out():
    """The pipelines that v2's documents show, and their variants."""
    import torch
    from torchvision import transforms as v1
    from torchvision import tv_tensors
    from torchvision.transforms import v2

    crop, to_float = v2.RandomResizedCrop(24), v2.ToDtype(torch.float32, scale=True)
    by_kind = v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, scale=True)
    expected = [T.RandomResizedCrop(24), T.ToTensor()]
    for given in [
        [v2.ToImage(), v2.ToDtype(torch.uint8, scale=True), crop, to_float],
        [v2.ToImage(), v2.ToDtype(torch.uint8), crop, to_float, v2.ToDtype(torch.float32)],
        [v2.PILToTensor(), v2.ConvertImageDtype(torch.uint8), crop, to_float, v2.ConvertImageDtype(torch.float32)],
        [v2.ToImage(), crop, by_kind, torch.nn.Identity()],
        [v2.Identity(), v2.ToDtype({tv_tensors.Mask: torch.int64, "others": None}), crop, v1.ToTensor()],
    ]:
        assert T.from_torchvision(v2.Compose(given)).transforms == expected, given
    with pytest.raises(stokehold.OptionError, match="dtype=torch.uint8, scale=True: of floats"):
        T.from_torchvision(v2.Compose([v2.ToImage(), crop, to_float, v2.ToDtype(torch.uint8, scale=True)]))
    # What torchvision leaves alone, because it looks at the type of images, is no conversion.
    # What torchvision leaves bytes are bytes.
    for given in ([to_float, v2.ToImage(), crop], [v2.PILToTensor(), crop, by_kind], [v2.ToImage(), crop, v2.ToTensor()]):
        assert T.from_torchvision(given).dtype == "uint8", given
    for given, match in [
        ([v1.ToTensor(), v1.ToTensor()], "raises an error for what is a tensor already"),
        ([v1.ConvertImageDtype(torch.float32)], "raises an error for PIL images"),
        ([v2.ToImage(), crop, v2.ToDtype({torch.Tensor: torch.float32}, scale=True)], "no value for torchvision.tv_tensors.Image"),
    ]:
        with pytest.raises(stokehold.OptionError, match=match):
            T.from_torchvision(v2.Compose(given))
    by_tensor = v2.ToDtype({torch.Tensor: torch.float32, "others": None}, scale=True)
    assert T.from_torchvision(v2.Compose([v2.PILToTensor(), crop, by_tensor])).transforms == expected


@needs_torchvision
def test_pixels_that_only_move_may_move_after_totensor(tmp_path):
    """torchvision makes the same numbers on either side, and so do we."""
    import torch
    from torchvision import transforms as V
    from torchvision.datasets import ImageFolder

    from stokehold.torch import DataLoader

    for number, (height, width) in enumerate([(40, 40), (37, 50)]):
        write_png(tmp_path / "a" / f"{number}.png", picture(number, height, width))
    to, normalize = V.ToTensor(), V.Normalize([0.5] * 3, [0.25] * 3)
    for given in [
        [to, V.Pad(3), V.CenterCrop(30), V.RandomVerticalFlip(1.0), normalize, V.RandomHorizontalFlip(1.0)],
        [to, V.CenterCrop(48), normalize],
        [to, V.Pad(2, 1), V.CenterCrop(44)],
        [to, normalize, V.Pad(4, padding_mode="reflect"), V.Pad(2, padding_mode="edge"), V.RandomHorizontalFlip(0.0), V.RandomCrop((41, 44))],
    ]:
        theirs = ImageFolder(tmp_path, V.Compose(given))
        for index, (images, _) in enumerate(DataLoader(theirs, 1)):
            if isinstance(given[-1], V.RandomCrop):
                assert images.shape == (1, 3, 41, 44)
            else:
                assert (images[0] - theirs[index][0]).abs().max() < 1e-6, given
    # Each axis rounds to bytes.
    for given, level in ([to, V.Resize((30, 31)), normalize], 4 / 255), ([to, normalize, V.Resize((60, 70)), V.RandomVerticalFlip(1.0)], 4 / 255):
        theirs = ImageFolder(tmp_path, V.Compose(given))
        for index, (images, _) in enumerate(DataLoader(theirs, 1, executor="per-op")):
            assert (images[0] - theirs[index][0]).abs().max() < 1.05 * level, given
    for given, message in [
        ([to, normalize, V.CenterCrop(30)], "transform 3 .*borders after Normalize"),
        ([to, normalize, V.RandomCrop(30, 4)], "transform 3 .*borders after Normalize"),
        ([to, V.Pad(2, 3), V.CenterCrop(30)], "transform 2 .*borders of 3 after ToTensor"),
        ([to, V.RandomErasing(), V.RandomCrop(30)], "RandomCrop.*works on bytes"),
        ([to, V.Resize((30, 30), V.InterpolationMode.BICUBIC), normalize], "transform 2 .*resizes by bicubic after ToTensor"),
    ]:
        with pytest.raises(stokehold.OptionError, match=message):
            T.from_torchvision(V.Compose(given))


@needs_torchvision
def test_what_is_not_converted_is_said():
    import torch
    from torch import nn
    from torchvision import transforms as v1
    from torchvision.transforms import v2

    class Own(v1.CenterCrop):
        pass

    for compose, message in [
        (v2.Compose([v2.ElasticTransform()]), r"transform 1 \(ElasticTransform\) has no equivalent here"),
        (
            v2.Compose([v2.CenterCrop(4), v2.RandomApply([v2.JPEG(50)])]),
            r"transform 2 \(RandomApply\) cannot be converted: transform 1 \(JPEG\) has no equivalent here",
        ),
        (v1.Compose([v1.CenterCrop(4), v1.RandomApply([v1.CenterCrop(3)]), v1.ToTensor()]), "different sizes"),
        (v1.Compose([v1.CenterCrop(4), Own(3)]), r"transform 2 \(Own\) is not one of torchvision's"),
        (v1.Compose([v1.CenterCrop(4), lambda image: image]), r"transform 2 \(<lambda>\).*batch_transform"),
        (v1.Compose([v1.Grayscale()]), r"transform 1 \(Grayscale\) cannot be converted: num_output_channels=1"),
        (v1.Compose([v1.RandomRotation(4, v1.InterpolationMode.LANCZOS)]), "interpolation=.lanczos.: there are"),
        (v2.Compose([v2.CenterCrop(4), v2.ToImage(), v2.ToDtype(torch.float32)]), "dtype=torch.float32, scale=False"),
        (v2.Compose([v2.ToImage(), v2.Resize(4, antialias=False)]), "antialias=False"),
        (v1.Compose([v1.ToTensor(), v1.ColorJitter(0.5), v1.CenterCrop(4)]), "ColorJitter.*works on bytes"),
        (v1.Compose([v1.CenterCrop(4)]), "does not end in floats"),
        (object(), "object"),
    ]:
        with pytest.raises(stokehold.OptionError, match=message):
            T.from_torchvision(compose)
    nested = v1.Compose([nn.Sequential(v1.CenterCrop(4)), v1.Compose([v1.PILToTensor(), v1.ConvertImageDtype(torch.float)])])
    assert T.from_torchvision(nested).transforms == [T.CenterCrop(4), T.ToTensor()]
    assert T.from_torchvision([v2.CenterCrop([4]), v2.ToTensor()]).size == (4, 4)


def test_numbers_of_numpy_are_numbers():
    for make in (np.float32, np.float64, float):
        assert T.RandomHorizontalFlip(make(0.25)) == T.RandomHorizontalFlip(0.25)
    assert T.RandomPosterize(np.int64(3), np.float32(0.5)).as_dict() == {"type": "RandomPosterize", "bits": 3, "p": 0.5}
    T.Compose([T.RandomHorizontalFlip(np.float32(0.25)), T.Resize((8, 8)), T.ToTensor()])
    with pytest.raises(stokehold.OptionError, match="p=<object"):
        T.RandomHorizontalFlip(object())
