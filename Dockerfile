# An image of one node: docs/howto/container.md says how to build and run it.

FROM python:3.12-slim AS build
# Compiles the accelerators; the image itself has no compiler.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY requirements.lock requirements-build.lock ./
# What is installed is what was tried: each package by its version and the sum of its file (`make lock`).
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements-build.lock \
 && python -m venv /opt/pyddmq \
 && /opt/pyddmq/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements.lock
COPY . .
RUN /opt/build/bin/pip wheel --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir /wheels . \
 && /opt/pyddmq/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps /wheels/*.whl

FROM python:3.12-slim
RUN groupadd --gid 10001 pyddmq \
 && useradd --uid 10001 --gid pyddmq --no-create-home --home-dir /var/lib/pyddmq --shell /usr/sbin/nologin pyddmq \
 && install -d -o pyddmq -g pyddmq -m 0700 /var/lib/pyddmq
COPY --from=build /opt/pyddmq /opt/pyddmq
COPY examples/container.yaml /etc/pyddmq/node.yaml
ENV PATH=/opt/pyddmq/bin:$PATH
USER pyddmq
WORKDIR /var/lib/pyddmq
VOLUME /var/lib/pyddmq
EXPOSE 9613 9713
# Drains: answers are taken for drainSeconds, then the node ends. A second one ends it at once.
STOPSIGNAL SIGTERM
# Whether the process answers, also while it recovers. /readyz says whether it serves, which no restart can mend.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9813/livez', timeout=4)"]
ENTRYPOINT ["pyddmq", "serve", "--config", "/etc/pyddmq/node.yaml", "--data", "/var/lib/pyddmq", "--json"]
