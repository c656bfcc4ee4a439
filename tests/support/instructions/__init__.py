"""Every instruction form of PTX that the emulator is compared with a GPU in: templates, inputs, places, answers.

`forms` says what a form is; `whole`, `reals`, `choices`, `conversions`, `memories`, `lanes`, `video` and `tensors` list
them by family, `catalogue` all; `values` makes the inputs; `places` runs forms on the emulator or a GPU; `answers`
stores and compares.
"""
