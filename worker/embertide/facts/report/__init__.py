"""The report of a run as one HTML page: time, traffic, memory; and as a trace (`otlp`).

A page is a function of the run's report and its version's manifest, so it can be drawn when the
version is published and again at any later time. It loads nothing and runs no script: markup
(`markup`), one style sheet, and charts of SVG whose positions are percentages (`charts`), so that
they fill any width while their text keeps its size. Every chart has its numbers in a table.

    page -> summary, timeline, phases, traffic, balance, memory, facts -> figures, charts
         -> run, numbers, markup
"""

from embertide.facts.report.page import draw_page

__all__ = ["draw_page"]
