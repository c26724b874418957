# The images of the operator, the relay and the worker:
#
#   docker build --target relay --tag outbox-relay .
#
# BASE_IMAGE may be any image with Python 3.11 or newer, its venv module and a shell. Where packages come from an
# index of your own, pass pip's variables as build arguments, or a pip.conf as a secret:
#
#   docker build --build-arg PIP_INDEX_URL=… --secret id=pip.conf,src=pip.conf …

ARG BASE_IMAGE=docker.io/library/python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b


# What makes the virtual environments. None of it reaches an image but for /opt/outbox.
FROM ${BASE_IMAGE} AS builder
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_CERT
ARG PIP_TRUSTED_HOST
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY images/environment.sh images/requirements-build.txt ./
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    python3 -m venv tools && tools/bin/pip install --quiet --require-hashes -r requirements-build.txt

# Our own packages, compiled, apart from what they need: an upgrade is a small layer.
FROM builder AS code
COPY pyproject.toml README.md source/
COPY client source/client
COPY core source/core
COPY relay source/relay
COPY worker-runtime source/worker-runtime
COPY operator source/operator
COPY cli source/cli
RUN ./environment.sh code source

FROM builder AS operator-packages
COPY images/requirements-operator.txt ./
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf ./environment.sh packages requirements-operator.txt

FROM builder AS relay-packages
COPY images/requirements-relay.txt ./
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf ./environment.sh packages requirements-relay.txt

FROM builder AS worker-packages
COPY images/requirements-worker.txt ./
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf ./environment.sh packages requirements-worker.txt


# What the images share. The user has a number, so that Kubernetes can see that it is not root, and a name for
# the libraries that ask for it. Nothing is written but below /tmp.
FROM ${BASE_IMAGE} AS runtime
RUN echo 'outbox:x:65532:65532:outbox:/tmp:/usr/sbin/nologin' >>/etc/passwd && echo 'outbox:x:65532:' >>/etc/group
ENV PATH=/opt/outbox/bin:${PATH} HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# `python -m` looks for modules where it stands: what is copied here can be imported.
WORKDIR /app
EXPOSE 8080
LABEL org.opencontainers.image.licenses="Apache-2.0"

# The import compiles what is used of the standard library, for official images come without.
FROM runtime AS operator
COPY --from=operator-packages /opt/outbox /opt/outbox
COPY --from=code /opt/outbox/code /opt/outbox/code
RUN PYTHONDONTWRITEBYTECODE= python -c 'import outbox_operator.__main__'
LABEL org.opencontainers.image.title="outbox-operator" \
      org.opencontainers.image.description="Makes what OutboxRelay and OutboxListener resources describe"
USER 65532:65532
ENTRYPOINT ["python", "-m", "outbox_operator"]

FROM runtime AS relay
COPY --from=relay-packages /opt/outbox /opt/outbox
COPY --from=code /opt/outbox/code /opt/outbox/code
RUN PYTHONDONTWRITEBYTECODE= python -c 'import outbox_relay.__main__'
LABEL org.opencontainers.image.title="outbox-relay" \
      org.opencontainers.image.description="Moves committed messages from Postgres to RabbitMQ"
USER 65532:65532
ENTRYPOINT ["python", "-m", "outbox_relay"]

# An application's own image is FROM this one: examples/shop/Dockerfile.
FROM runtime AS worker
COPY --from=worker-packages /opt/outbox /opt/outbox
COPY --from=code /opt/outbox/code /opt/outbox/code
RUN PYTHONDONTWRITEBYTECODE= python -c 'import outbox_worker.__main__'
LABEL org.opencontainers.image.title="outbox-worker" \
      org.opencontainers.image.description="Calls an application's listeners with messages from RabbitMQ"
USER 65532:65532
ENTRYPOINT ["python", "-m", "outbox_worker"]
