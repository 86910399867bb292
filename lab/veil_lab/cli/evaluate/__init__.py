"""Commands of `veil evaluate`: one for each public protocol, in `attacks/`, `poses/`, `homographies` and `reconstruction`.

`commands` brings all together; `descriptors` and `scene_arguments` are options and inputs that protocols share.
"""
