"""The console in a real browser, over a real cluster.

- `chromium`: the browser of these tests.
- `watched_page`: one page of the browser, with what went wrong in it.
- `hostile_names`: texts that are scripts if a page does not escape them.
- `running_console`: a console process, and a login in it.
- `sample_cluster`: a cluster whose pages all have something to show.
- `page_list`: addresses of all pages.
- `screenshots`: pictures of the console in the documents.

`make test-browser` runs the tests. They need Debian's `chromium`, or another Chromium whose path
is in the environment variable CHROMIUM.
"""
