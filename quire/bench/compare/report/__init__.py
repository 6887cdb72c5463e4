"""Draws a comparison: one HTML page that loads nothing else.

- `page`: the page, and its content for the console.
- `style`: colours and style sheets.
- `sections`: one section per scenario.
- `charts`: pictures as SVG, each with a table of its data.
- `svg`: elements and scales of SVG.
"""
