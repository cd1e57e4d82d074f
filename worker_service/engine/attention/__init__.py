"""Attention over the paged cache, back ends behind one function.

A back end is a function `attend(query_THD, layer, groups, options) -> out_THD`: `layer` is the
`LayerCache` that already holds this step's keys and values, `groups` the step's `AttentionGroup`s,
which cover [0, T) in order, `options` what the model's layer asks for (scale, window, soft cap).
It knows nothing of models, and changes nothing but the masks it keeps in a group for later layers.

`reference.py` is the readable one, for any device; faster ones are tested against it.
"""
