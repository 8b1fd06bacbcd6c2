FROM golang:1.26-bookworm@sha256:551752d3ad9de9923190bf5280500617ed8fee287ffb4b0220e770ef89346258 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# Static: the image below has no C library.
ARG VERSION=
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w -X main.version=$VERSION" -o /likewise ./cmd/likewise && mkdir /images

FROM scratch
# For MySQL, Redis and Kafka over TLS.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /likewise /likewise
# The place of uploaded images in compose.yaml. A volume that is mounted there takes its owner from here.
COPY --from=build --chown=65532:65532 /images /images
# A number, so that Kubernetes can see that it is not root's.
USER 65532:65532
# The API, and the pages. The admin listeners are on loopback unless LIKEWISE_ADMIN_LISTEN says otherwise.
EXPOSE 8080 8083
# For the api. The other roles are asked elsewhere: see compose.yaml.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s CMD ["/likewise", "healthcheck"]
ENTRYPOINT ["/likewise"]
CMD ["api"]
