"""Places names on a plane, so that names with near vectors lie near each other."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np

from pearl_qdrant.encoder.protocol import FloatArray

MIN_NEIGHBOURS = 12
"""t-SNE needs some neighbours of each name; fewer names are laid out by PCA."""

_PERPLEXITY = 30.0  # van der Maaten and Hinton 2008 name 5 to 50
_ITERATIONS = 500  # 1,000, the library's default, take twice the time and look the same
_COMPONENTS = 50  # the same paper reduces to 50 dimensions first


def lay_out(vectors: FloatArray) -> tuple[FloatArray, str]:
    """Places of vectors on a plane; the same vectors have the same places.

    t-SNE of scikit-learn where it is installed and there are enough vectors; else the first two principal components.

    Args:
        vectors: (n, dim), finite.

    Returns:
        Places, (n, 2), in [0, 1] with the proportions kept, and the method: ``t-sne`` or ``pca``.
    """
    if len(vectors) >= MIN_NEIGHBOURS and find_spec("sklearn") is not None:
        return _fitted(_tsne(vectors)), "t-sne"
    return _fitted(principal_components(vectors, 2)), "pca"


def principal_components(vectors: FloatArray, count: int) -> FloatArray:
    """Coordinates along the `count` directions in which vectors differ most, (n, count); directions that lack are 0.

    The sign of a direction is the one that makes its largest coordinate positive.
    """
    found = np.zeros((len(vectors), count), dtype=np.float32)
    if len(vectors) < 2:
        return found
    centred = np.asarray(vectors, dtype=np.float64) - np.mean(vectors, axis=0, dtype=np.float64)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    coordinates = (left * sizes)[:, :count]
    largest = np.argmax(np.abs(coordinates), axis=0)
    coordinates *= np.where(coordinates[largest, np.arange(coordinates.shape[1])] < 0, -1.0, 1.0)
    found[:, : coordinates.shape[1]] = coordinates
    return found


def _tsne(vectors: FloatArray) -> FloatArray:
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    perplexity = min(_PERPLEXITY, (len(vectors) - 1) / 3)  # scikit-learn looks at three times as many neighbours
    placing = TSNE(n_components=2, perplexity=perplexity, max_iter=_ITERATIONS, init="pca", random_state=0)
    # One thread: the threads of each of the 500 steps wait for each other, which takes ten times as long where other
    # programs or batches have the cores.
    with threadpool_limits(1):
        reduced = principal_components(vectors, _COMPONENTS)
        return np.asarray(placing.fit_transform(reduced), dtype=np.float32)


def _fitted(places: FloatArray) -> FloatArray:
    """Places moved and scaled into the unit square, in its middle."""
    if not len(places):
        return places
    low, high = places.min(axis=0), places.max(axis=0)
    extent = float((high - low).max()) or 1.0
    return np.asarray((places - (low + high) / 2) / extent + 0.5, dtype=np.float32)
