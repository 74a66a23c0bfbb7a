# docker build -t fp16lab . && docker run --rm -v "$PWD:/data" fp16lab hist gradients.npz
FROM debian:13-slim AS build
COPY . /fp16lab
WORKDIR /fp16lab
RUN scripts/setup.sh && cmake --preset deb && cmake --build --preset deb
FROM debian:13-slim
COPY --from=build /fp16lab/build-deb/*.deb /tmp/
RUN apt-get update && apt-get install -y /tmp/*.deb && rm -rf /tmp/*.deb /var/lib/apt/lists/*
WORKDIR /data
ENTRYPOINT ["fp16lab"]
