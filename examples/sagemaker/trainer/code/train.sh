#!/bin/sh
# Stokehold's own trainer. It reads data, options and folders from the variables of the job.
exec stokehold job trainer
