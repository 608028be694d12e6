# A script with the Python package stokehold, by SageMaker's contract for training jobs.

FROM {base} AS build
RUN python3 -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
COPY {wheel} /tmp/{wheel}
RUN pip install --no-cache-dir /tmp/{wheel}
{requirements}
# It fails here, and not in a job, if this image's C library is older than the program's.
RUN stokehold --version

FROM {base}
RUN useradd --create-home --uid 1000 trainer
COPY --from=build /opt/venv /opt/venv
COPY code /opt/ml/code
ENV PATH=/opt/venv/bin:$PATH
ENV SAGEMAKER_PROGRAM={entry point}
# NVIDIA's runtime shows the GPUs and their driver to images that ask for them; CUDA itself is in the packages of PyTorch.
ENV NVIDIA_VISIBLE_DEVICES=all
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /opt/ml/code
# Root prepares /opt/ml, which belongs to root on SageMaker, and the script runs as this user.
ENTRYPOINT ["stokehold", "job", "container", "--user", "trainer"]
CMD ["train"]
