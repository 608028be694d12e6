#!/bin/sh
# A trial: `stokehold train` with the arguments that the study chose. Says each epoch's loss in the form that the study reads.

# The training gets the signal to stop as well, and this shell waits for its last checkpoint.
trap : TERM
runs=$SM_CHECKPOINT_DIR
[ -d "$runs/trial/checkpoints" ] && set -- --resume "$@"

{
    stokehold train "$SM_CHANNEL_TRAINING" --runs "$runs" --name trial --ceiling-batches 0 "$@" 2>&1
    echo "ended with $?"
} | {
    trap '' TERM
    code=1
    while read -r line; do
        echo "$line"
        case $line in
        "epoch "*": loss "*)
            loss=${line#*: loss }
            echo "train-loss: ${loss%%,*}"
            ;;
        "ended with "*) code=${line#ended with } ;;
        esac
    done
    cp "$runs/trial/model.safetensors" "$SM_MODEL_DIR/" || code=1
    exit "$code"
}
