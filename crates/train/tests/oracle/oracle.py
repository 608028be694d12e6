"""What PyTorch and torchvision answer to the questions of the parity tests, as JSON on stdout.

Weights, images and labels are not exchanged: both sides compute them by the same formula (tests/it/formula.rs).
usage: python oracle.py NAME PROCESS

It listens at the abstract socket NAME, and prints a line once it does. Each connection asks [QUESTION, DETAILS] and gets
{"versions": .., "answer": ..}, or {"failed": ..}. It ends with PROCESS, and where nobody has asked for a minute.
"""
import json
import os
import select
import signal
import socket
import struct
import sys
import traceback

# Threads that wait for one another would otherwise hold the cores that other tests want: a training takes ten times as long.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Whoever is second leaves the questions to the first, and connections wait while this one imports.
SERVER = socket.socket(socket.AF_UNIX)
try:
    SERVER.bind("\0" + sys.argv[1])
    SERVER.listen(64)
except OSError:
    sys.exit()
finally:
    print("listens", flush=True)

import numpy as np
import torch
import torchvision

torch.manual_seed(0)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(x):
    with np.errstate(over="ignore"):
        x = x + GOLDEN
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def fnv(key):
    h = 0xCBF29CE484222325
    for byte in key.encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return h


def units(key, n):
    """n numbers in [0, 1), exact in f32 and f64."""
    with np.errstate(over="ignore"):
        counter = np.uint64(fnv(key)) + np.arange(n, dtype=np.uint64) * GOLDEN
    return (mix(counter) >> np.uint64(40)).astype(np.float64) / 2.0**24


def uniform(key, shape):
    """In [-1, 1)."""
    return 2.0 * units(key, int(np.prod(shape))).reshape(shape) - 1.0


def weight(key, shape):
    u = uniform(key, shape)
    if len(shape) > 1:
        u = u * np.sqrt((6.0 if len(shape) == 4 else 1.0) / np.prod(shape[1:]))
    elif key.endswith("running_var"):
        u = 1.0 + 0.5 * u
    elif key.endswith("weight"):
        u = 0.25 + 0.05 * u
    else:
        u = 0.1 * u
    return torch.from_numpy(u.astype(np.float32))


def dilated_resnet18():
    """What replace_stride_with_dilation=[False, False, True] would be if torchvision had it for basic blocks."""
    net = torchvision.models.resnet18()
    first, second = net.layer4
    first.conv1.stride = first.downsample[0].stride = (1, 1)
    for conv in (second.conv1, second.conv2):
        conv.dilation = conv.padding = (2, 2)
    return net


def built(arch, classes):
    """torchvision's own network, of random weights."""
    segmentation = torchvision.models.segmentation
    if arch == "fcn-resnet18":
        backbone = torchvision.models._utils.IntermediateLayerGetter(dilated_resnet18(), {"layer4": "out"})
        return segmentation.FCN(backbone, segmentation.fcn.FCNHead(512, classes))
    if "-" in arch:
        make = getattr(segmentation, arch.replace("-", "_"))
        return make(weights=None, weights_backbone=None, num_classes=classes, aux_loss=True)
    return getattr(torchvision.models, arch)(num_classes=classes)


def model(arch, classes):
    net = built(arch, classes)
    state = net.state_dict()
    for key in state:
        if not key.endswith("num_batches_tracked"):
            state[key] = weight(key, tuple(state[key].shape))
    net.load_state_dict(state)
    return net


def images(key, n, size):
    return torch.from_numpy(uniform(key, (n, 3, size, size)).astype(np.float32))


def labels(key, n, classes):
    return torch.from_numpy((units(key, n) * classes).astype(np.int64))


def batch(index, n, size, classes):
    y = labels(f"labels{index}", n, classes)
    colours = torch.from_numpy(uniform("colours", (classes, 3)).astype(np.float32))
    return 0.5 * images(f"images{index}", n, size) + colours[y][:, :, None, None], y


def logits(q):
    with torch.no_grad():
        return {arch: model(arch, q["classes"]).eval()(images("input", q["batch"], q["size"])).tolist() for arch in q["archs"]}


def optimizer(net, q, undecayed="none"):
    """What is in `undecayed` has no weight decay: as torchvision splits (norm), or as timm does (norm-and-bias)."""
    kind = dict(q)
    decay = kind.pop("weight_decay")
    named = list(net.named_parameters())
    if undecayed == "none":
        groups = [{"params": [p for _, p in named], "weight_decay": decay}]
    else:
        if undecayed == "norm":
            without = torchvision.ops._utils.split_normalization_params(net)[0]
        else:
            without = [p for key, p in named if p.ndim <= 1 or key.endswith(".bias")]
        ids = {id(p) for p in without}
        groups = [{"params": without, "weight_decay": 0.0}]
        groups.append({"params": [p for _, p in named if id(p) not in ids], "weight_decay": decay})
    if kind.pop("kind") == "sgd":
        return torch.optim.SGD(groups, lr=1.0, **kind)
    kind = {"lr": 1.0, "betas": (kind["beta1"], kind["beta2"]), "eps": kind["epsilon"], "weight_decay": decay}
    return torch.optim.AdamW(groups, **kind)


def autocast_logits(q):
    """Logits in training, of f32 and of each type under torch.autocast."""
    answers = {}
    for name in q["types"]:
        net = model(q["arch"], q["classes"]).train()
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[name]
        with torch.no_grad(), torch.autocast("cpu", dtype, enabled=name != "f32"):
            answers[name] = net(images("input", q["batch"], q["size"])).float().flatten().tolist()
    return answers


def loss_scale(q):
    """GradScaler's scale after each step, of which some have gradients that are not finite."""
    p = torch.nn.Parameter(torch.zeros(1))
    optim, scaler, scales = torch.optim.SGD([p], lr=0.0), torch.amp.GradScaler("cpu"), []
    for step in range(q["steps"]):
        scaler.scale(p.sum()).backward()
        if step in q["infinite"]:
            p.grad.fill_(float("inf"))
        scaler.step(optim)
        scaler.update()
        optim.zero_grad()
        scales.append(scaler.get_scale())
    return scales


def train(q):
    """Losses, the first gradient's norm, and afterwards the running statistics and the logits in eval mode."""
    net = model(q["arch"], q["classes"]).train()
    optim = optimizer(net, q["optimizer"])
    losses, norms = [], []
    for step in range(q["steps"]):
        x, y = batch(0, q["batch"], q["size"], q["classes"])
        loss = torch.nn.functional.cross_entropy(net(x), y, label_smoothing=q["label_smoothing"])
        optim.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(net.parameters(), q["clip_norm"]).item())
        for group in optim.param_groups:
            group["lr"] = q["lr"]
        optim.step()
        losses.append(loss.item())
    state = net.state_dict()
    with torch.no_grad():
        after = net.eval()(images("input", 2, q["size"])).tolist()
    running = {key: state[key].tolist() for key in state if "running" in key and q["running"]}
    return {"losses": losses, "norm": norms[0], "running": running, "logits": after}


def optimize(q):
    """Some parameters after some steps with gradients by formula; the others have none."""
    net = model(q["arch"], q["classes"])
    optim = optimizer(net, q["optimizer"], q.get("undecayed", "none"))
    params = {key: p for key, p in net.named_parameters() if key in q["keys"]}
    norms = []
    for step in range(q["steps"]):
        for key, p in params.items():
            p.grad = torch.from_numpy(uniform(f"{key} gradient {step}", tuple(p.shape)).astype(np.float32))
        norms.append(torch.nn.utils.clip_grad_norm_(net.parameters(), q["clip_norm"]).item())
        for group in optim.param_groups:
            group["lr"] = q["lr"] / (step + 1)
        optim.step()
    return {"norms": norms, "params": {key: p.flatten().tolist() for key, p in params.items()}}


def pixel_classes(key, n, size, classes):
    """[n, size, size]; 255 where there is none."""
    found = (units(key, n * size * size) * (classes + 1)).astype(np.int64).reshape(n, size, size)
    return torch.from_numpy(np.where(found == classes, 255, found))


def pixel_logits(q):
    with torch.no_grad():
        return {
            arch: model(arch, q["classes"]).eval()(images("input", q["batch"], q["size"]))["out"].flatten().tolist()
            for arch in q["archs"]
        }


def pixel_loss(q):
    """For each choice of weights the loss and its gradient's sum of squares."""
    shape = (q["batch"], q["classes"], q["size"], q["size"])
    answers = []
    for weights in q["weights"]:
        x = torch.from_numpy(4.0 * uniform("logits", shape)).float().requires_grad_()
        y = pixel_classes("masks", q["batch"], q["size"], q["classes"])
        weights = None if weights is None else torch.tensor(weights)
        loss = torch.nn.CrossEntropyLoss(weight=weights, ignore_index=255)(x, y)
        loss.backward()
        answers.append([loss.item(), x.grad.square().sum().item()])
    return answers


def train_pixels(q):
    """Losses and the first gradient's norm of steps as torchvision's references make them, without dropout."""
    net = model(q["arch"], q["classes"]).train()
    for module in net.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    optim = torch.optim.SGD(net.parameters(), lr=q["lr"])
    x, y = images("images0", q["batch"], q["size"]), pixel_classes("masks", q["batch"], q["size"], q["classes"])
    weights = torch.tensor(q["weights"])
    losses, norms = [], []
    for _ in range(q["steps"]):
        out = net(x)
        parts = {name: torch.nn.functional.cross_entropy(one, y, weights, ignore_index=255) for name, one in out.items()}
        loss = parts["out"] + 0.5 * parts["aux"] if "aux" in parts else parts["out"]
        optim.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(net.parameters(), q["clip_norm"]).item())
        optim.step()
        losses.append(loss.item())
    return {"losses": losses, "norm": norms[0]}


def confusion(q):
    """The ConfusionMatrix of torchvision's references/segmentation, in numpy."""
    n = q["classes"]
    truth = pixel_classes("truth", 1, q["size"], n).numpy().flatten()
    found = (units("predicted", q["size"] ** 2) * q["predicted"]).astype(np.int64)
    there = (truth >= 0) & (truth < n)
    matrix = np.bincount(n * truth[there] + found[there], minlength=n * n).reshape(n, n)
    right = np.diag(matrix)
    iou = right / (matrix.sum(1) + matrix.sum(0) - right)
    return {"matrix": matrix.flatten().tolist(), "accuracy": right.sum() / matrix.sum(), "iou": iou.tolist(), "miou": iou.mean()}


def write_segmenters(q):
    """Files of random weights as torchvision's users have them, and the logits in eval mode."""
    torch.manual_seed(q["seed"])
    x, answers = images("input", 2, q["size"]), {}
    for arch in q["archs"]:
        net = built(arch, q["classes"]).eval()
        # Otherwise what normalisation does to fresh weights is next to nothing.
        for key, value in net.state_dict().items():
            if key.endswith(("running_mean", "running_var")):
                value.copy_(weight(key, tuple(value.shape)))
        with torch.no_grad():
            answers[arch] = net(x)["out"].flatten().tolist()
        torch.save(net.state_dict(), f"{q['folder']}/{arch}.pth")
    torch.save({key: value for key, value in net.state_dict().items() if "aux" not in key}, f"{q['folder']}/no-aux.pth")
    torch.save(torchvision.models.resnet50(num_classes=7).state_dict(), f"{q['folder']}/resnet50.pth")
    return answers


def loss(q):
    x = torch.from_numpy(4.0 * uniform("logits", (q["batch"], q["classes"]))).float()
    y = labels("labels", q["batch"], q["classes"])
    return [torch.nn.functional.cross_entropy(x, y, label_smoothing=s).item() for s in q["label_smoothing"]]


def soft_loss(q):
    """For each smoothing cross-entropy, of targets that torchvision's MixUp has made."""
    from torchvision.transforms import v2

    x = torch.from_numpy(40.0 * uniform("logits", (q["batch"], q["classes"]))).float()
    y = labels("labels", q["batch"], q["classes"])
    mixed = v2.MixUp(num_classes=q["classes"]).transform(y, {"labels": y, "batch_size": len(y), "lam": q["share"]})
    return [torch.nn.functional.cross_entropy(x, mixed, label_smoothing=s).item() for s in q["label_smoothing"]]


def ema(q):
    """Arrays of a model that moves by formula, and of its average as torchvision's references/classification/train.py
    has it: ExponentialMovingAverage (an AveragedModel over buffers too), whose count is set back in epochs of warm-up."""
    net = model(q["arch"], q["classes"]).train()
    weights = {key: p for key, p in net.named_parameters() if key in q["weights"]}
    optim = torch.optim.SGD(weights.values(), lr=q["lr"])
    adjust = q["batch"] * q["ema_steps"] / q["epochs"]
    decay = 1.0 - min(1.0, (1.0 - q["decay"]) * adjust)
    average = torch.optim.swa_utils.AveragedModel(
        net, avg_fn=lambda own, new, count: decay * own + (1 - decay) * new, use_buffers=True
    )
    for number in range(q["epochs"] * q["steps_per_epoch"]):
        epoch, i = divmod(number, q["steps_per_epoch"])
        with torch.no_grad():
            net(images(f"images{number}", q["batch"], q["size"]))
        for key, p in weights.items():
            p.grad = torch.from_numpy(uniform(f"{key} gradient {number}", tuple(p.shape)).astype(np.float32))
        optim.step()
        if i % q["ema_steps"] == 0:
            average.update_parameters(net)
            if epoch < q["warmup_epochs"]:
                average.n_averaged.fill_(0)
    states = net.state_dict(), average.module.state_dict()
    return {key: [state[key].flatten().tolist() for state in states] for key in q["weights"] + q["statistics"]}


def mixture(q):
    """The images and targets of torchvision's MixUp or CutMix, of a mixture that is given."""
    from torchvision.transforms import v2

    x, y = images("mixed", q["batch"], q["size"]), labels("labels", q["batch"], q["classes"])
    common = {"labels": y, "batch_size": len(y)}
    if "box" in q:
        kind, params = v2.CutMix, {"box": q["box"], "lam_adjusted": q["share"]}
    else:
        kind, params = v2.MixUp, {"lam": q["share"]}
    made = [kind(num_classes=q["classes"]).transform(part, common | params) for part in (x, y)]
    return {"images": made[0].flatten().tolist(), "targets": made[1].flatten().tolist()}


def schedules(q):
    """The rates of every step, of several schedules."""
    return [schedule(one) for one in q]


def schedule(q):
    """The rates of every step under torch.optim.lr_scheduler."""
    from torch.optim import lr_scheduler as s

    optim = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=q["base_lr"])
    steps, total, warmup = q["steps_per_epoch"], q["steps_per_epoch"] * q["epochs"], q["warmup_steps"]
    rise = s.LinearLR(optim, start_factor=1.0 / warmup, total_iters=warmup - 1) if warmup else None
    if q["kind"] == "cosine":
        main = s.CosineAnnealingLR(optim, T_max=total - warmup, eta_min=q["final_factor"] * q["base_lr"])
        whole = s.SequentialLR(optim, [rise, main], milestones=[warmup]) if rise else main
    else:
        every, gamma = (q["every_epochs"], q["gamma"]) if q["kind"] == "step" else (1, 1.0)
        main = s.StepLR(optim, step_size=every * steps, gamma=gamma)
        whole = s.ChainedScheduler([rise, main]) if rise else main
    rates = []
    for _ in range(total):
        rates.append(optim.param_groups[0]["lr"])
        optim.step()
        whole.step()
    return rates


def write_pth(q):
    """The same weights in the forms in which people save them."""
    state = model(q["arch"], q["classes"]).state_dict()
    under = {"plain": state}
    under["checkpoint"] = {"epoch": 3, "arch": q["arch"], "state_dict": state, "optimizer": {"state": {0: {"momentum_buffer": torch.ones(5)}}}}
    under["references"] = {"model": state, "epoch": 3, "lr_scheduler": {"last_epoch": 3}}
    under["parallel"] = {"state_dict": {"module." + key: value for key, value in state.items()}}
    under["half"] = {key: value.half() if value.is_floating_point() else value for key, value in state.items()}
    under["bfloat"] = {key: value.bfloat16() if value.is_floating_point() else value for key, value in state.items()}
    under["double"] = {key: value.double() if value.is_floating_point() else value for key, value in state.items()}
    for name, saved in under.items():
        torch.save(saved, f"{q['folder']}/{name}.pth")
    torch.save(state, f"{q['folder']}/legacy.pth", _use_new_zipfile_serialization=False)
    return sorted([*under, "legacy"])


def load_safetensors(q):
    """A file of ours, read as its format says, loaded with strict=True; the logits in eval mode."""
    with open(q["path"], "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    metadata = header.pop("__metadata__")
    state = {}
    for key, entry in header.items():
        assert entry["dtype"] == "F32", entry
        begin, end = entry["data_offsets"]
        state[key] = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32).reshape(entry["shape"])
    net = built(q["arch"], q["classes"])
    net.load_state_dict(state, strict=True)
    with torch.no_grad():
        out = net.eval()(images("input", 2, q["size"]))
    out = out["out"] if isinstance(out, dict) else out
    return {"logits": out.flatten(1).tolist(), "metadata": metadata}


def initial(q):
    """Standard deviations of a freshly initialised model's arrays, by key."""
    state = built(q["arch"], q["classes"]).state_dict()
    return {key: [value.mean().item(), value.std(correction=0).item()] for key, value in state.items() if value.is_floating_point()}


def evaluate(q):
    """Weights of a model and what it makes of a folder, by torchvision's own ImageFolder and transforms.

    Without a folder of images, class folders of JPEGs are made. The last layer's bias takes the mean logits out, so that
    the predictions vary. The images are in the order of ImageFolder.
    """
    from PIL import Image
    from torchvision import transforms

    root = q["images"] or f"{q['folder']}/images"
    for number in range(0 if q["images"] else 36):
        # Coarse noise, so that a JPEG keeps it, of a size that is resized in both directions.
        noise = (255 * units(f"image{number}", 7 * 5 * 3)).astype(np.uint8).reshape(7, 5, 3)
        size = (48 + 11 * (number % 13), 45 + 17 * (number % 7))
        folder = f"{root}/{'cat dog emu'.split()[number % 3]}"
        os.makedirs(folder, exist_ok=True)
        Image.fromarray(noise).resize(size, Image.BICUBIC).save(f"{folder}/{number:02}.jpg", quality=90)
    normalise = transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    steps = [transforms.Resize(q["resize"]), transforms.CenterCrop(q["crop"]), transforms.ToTensor(), normalise]
    data = torchvision.datasets.ImageFolder(root, transforms.Compose(steps))
    batches = list(torch.utils.data.DataLoader(data, batch_size=16))
    targets = torch.cat([labels for _, labels in batches])
    net = torchvision.models.resnet18(num_classes=len(data.classes)).eval()
    forward = lambda: torch.cat([net(images) for images, _ in batches])
    with torch.no_grad():
        net.fc.bias -= forward().mean(0)
        out = forward()
    torch.save(net.state_dict(), f"{q['folder']}/model.pth")
    ranked = out.argsort(1, descending=True)
    return {
        "root": root,
        "classes": data.classes,
        "paths": [path for path, _ in data.samples],
        "logits": out.tolist(),
        "loss": torch.nn.functional.cross_entropy(out, targets).item(),
        "right": (ranked[:, 0] == targets).sum().item(),
        "among": (ranked[:, :2] == targets[:, None]).any(1).sum().item(),
    }


def reply(connection):
    with connection.makefile("rw") as file:
        try:
            question, details = json.loads(file.readline())
            versions = f"torch {torch.__version__}, torchvision {torchvision.__version__}"
            answer = {"versions": versions, "answer": globals()[question](details)}
        except Exception:
            answer = {"failed": traceback.format_exc()}
        json.dump(answer, file)


def serve(process):
    """Each question has a process of its own, with this one's imports and seed and nothing of other questions."""
    runner = os.pidfd_open(process)
    events = select.poll()
    for file in (SERVER.fileno(), runner):
        events.register(file, select.POLLIN)
    answering = set()
    while True:
        ready = [file for file, _ in events.poll(60_000)]
        if runner in ready:
            # No one waits for an answer any more.
            os.killpg(0, signal.SIGKILL)
        answering = {child for child in answering if os.waitpid(child, os.WNOHANG) == (0, 0)}
        if ready:
            connection, _ = SERVER.accept()
            child = os.fork()
            if child == 0:
                SERVER.close()
                reply(connection)
                os._exit(0)
            answering.add(child)
            connection.close()
        elif not answering:
            return


serve(int(sys.argv[2]))
