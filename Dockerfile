# syntax=docker/dockerfile:1
FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --package waypost \
    && install -D target/release/waypost /out/waypost \
    && mkdir /out/state

# glibc, certificates and nothing else: no shell, no package manager.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /out/waypost /usr/local/bin/waypost
# A fresh volume takes over owner and mode of what it is mounted on.
COPY --from=build --chown=65532:65532 /out/state /var/lib/waypost
# By number, so that Kubernetes can tell it is not root.
USER 65532:65532
WORKDIR /var/lib/waypost
VOLUME /var/lib/waypost
EXPOSE 7400 7401
ENTRYPOINT ["/usr/local/bin/waypost"]
CMD ["serve", "--config", "/etc/waypost/waypost.yaml"]
