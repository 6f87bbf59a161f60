# The bundled trainer, with what the Pods of every job type need: sshd and pdsh for launchers, mpirun,
# git for code.
#
#     docker build -t REGISTRY/dtrain-trainer .
#
# Where there is no container engine, tests/engines/kubernetes/trainer-image makes the same of the
# programs in build/release.
FROM debian:bookworm AS build
COPY . /src
WORKDIR /src
RUN ./dev install --prefix /out

FROM debian:bookworm-slim
COPY tests/engines/kubernetes/trainer-image.packages /tmp/packages
RUN apt-get update \
    && grep -v '^#' /tmp/packages | xargs apt-get install -y --no-install-recommends \
    && rm -rf /var/lib/apt/lists/* /tmp/packages /etc/ssh/ssh_host_* \
    && useradd --uid 1000 --create-home --shell /bin/bash trainer
COPY --from=build /out/bin /usr/bin
