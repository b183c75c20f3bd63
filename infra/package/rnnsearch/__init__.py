"""RNNsearch (Bahdanau, Cho, Bengio 2015) as a cached, resumable, distributed pipeline."""
