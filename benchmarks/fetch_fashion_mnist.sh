#!/bin/sh
# Fashion-MNIST (MIT licence, 30 MB) from Debian's package dataset-fashion-mnist, unpacked without installing it:
#   sh benchmarks/fetch_fashion_mnist.sh DIR      then   python benchmarks/fashion.py --source DIR/train
set -eu
target=${1:?the folder for the four IDX files}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$target"
(cd "$work" && apt-get download dataset-fashion-mnist && dpkg-deb -x dataset-fashion-mnist_*.deb .)
find "$work" -name '*-ubyte.gz' -exec cp {} "$target" \;
ls -l "$target"
