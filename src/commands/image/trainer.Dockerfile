# Stokehold's trainer, by SageMaker's contract for training jobs.

FROM {base} AS build
# Certificates, for buckets, and a program without symbols; what they need stays in this stage.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends binutils ca-certificates \
 && rm -rf /var/lib/apt/lists/*
COPY stokehold /usr/local/bin/stokehold
# It fails here, and not in a job, if this image's C library is older than the program's.
RUN strip /usr/local/bin/stokehold \
 && chmod 755 /usr/local/bin/stokehold \
 && stokehold --version

FROM {base}
RUN useradd --create-home --uid 1000 trainer
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /usr/local/bin/stokehold /usr/local/bin/stokehold
COPY --chmod=755 code /opt/ml/code
ENV SAGEMAKER_PROGRAM=train.sh
WORKDIR /opt/ml/code
# Root prepares /opt/ml, which belongs to root on SageMaker, and the script runs as this user.
ENTRYPOINT ["stokehold", "job", "container", "--user", "trainer"]
CMD ["train"]
