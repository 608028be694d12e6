"""A training script as one writes it for SageMaker: a line through points, by gradient descent.

It knows nothing of Stokehold, and needs nothing but Python.
"""

import argparse
import json
import os


def points(channel, epoch):
    """The points of a channel: of its files in order, or of the epoch's pipe."""
    if os.path.isdir(channel):
        paths = [os.path.join(channel, name) for name in sorted(os.listdir(channel))]
    else:
        paths = [f"{channel}_{epoch}"]
    for path in paths:
        with open(path) as lines:
            for line in lines:
                x, y = line.split(",")
                yield float(x), float(y)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--train", default=os.environ["SM_CHANNEL_TRAIN"])
    parser.add_argument("--model-dir", default=os.environ["SM_MODEL_DIR"])
    parser.add_argument("--output-data-dir", default=os.environ["SM_OUTPUT_DATA_DIR"])
    args = parser.parse_args()
    print("hyperparameters:", os.environ["SM_HPS"])

    slope, intercept, history = 0.0, 0.0, []
    for epoch in range(args.epochs):
        loss, seen = 0.0, 0
        for x, y in points(args.train, epoch):
            error = slope * x + intercept - y
            slope -= args.lr * error * x
            intercept -= args.lr * error
            loss, seen = loss + error * error, seen + 1
        history.append(loss / seen)
        print(f"epoch: {epoch}; train-loss: {history[-1]:.6f};")

    with open(os.path.join(args.model_dir, "model.json"), "w") as file:
        json.dump({"slope": slope, "intercept": intercept}, file)
    with open(os.path.join(args.output_data_dir, "history.json"), "w") as file:
        json.dump(history, file)


if __name__ == "__main__":
    main()
