"""Texts that are scripts if a page does not escape them."""

from typing import Final

MARK: Final = "__script_of_a_name_ran"
"""Variable of a page that such a script sets."""
_RUN: Final = f"window.{MARK}=1;alert(1)"
IMAGE: Final = f"<img src=x onerror={_RUN}>"
SCRIPT: Final = f"</script><script>{_RUN}</script>"
ATTRIBUTE: Final = f"\"' autofocus onfocus={_RUN} x=\"'"
TEMPLATE: Final = "{{ 7*7 }}{% include 'base.html' %}"
ADDRESS: Final = f"javascript:{_RUN}"
SHAPE: Final = f"<svg/onload={_RUN}><!--"
HOSTILE: Final = (IMAGE, SCRIPT, ATTRIBUTE, TEMPLATE, ADDRESS, SHAPE)
REVERSED: Final = "safe\u202etxt.exe"
"""A text that changes the direction of what follows it."""
