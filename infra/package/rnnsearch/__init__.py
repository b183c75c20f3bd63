"""RNNsearch (Bahdanau, Cho, Bengio 2015) as a cached, resumable, distributed pipeline."""

from rnnsearch.storage.loading import install

install()
