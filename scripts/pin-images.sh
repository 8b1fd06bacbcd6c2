#!/usr/bin/env bash
# Writes the digests that the tags of compose.yaml and of the Dockerfile have in their registries now. Needs Docker. Review
# the difference, build and test before it is committed.
set -euo pipefail
cd "$(dirname "$0")/.."

grep -ohE '[a-z0-9/.-]+:[A-Za-z0-9._-]+@sha256:[0-9a-f]{64}' compose.yaml Dockerfile | sort -u | while read -r pinned; do
	tag=${pinned%@*}
	digest=$(docker buildx imagetools inspect "$tag" --format '{{.Manifest.Digest}}')
	[[ $digest =~ ^sha256:[0-9a-f]{64}$ ]] || { echo "pin-images: $tag has no digest: $digest" >&2; exit 1; }
	sed -i "s|$pinned|$tag@$digest|" compose.yaml Dockerfile
	echo "$tag@$digest"
done
