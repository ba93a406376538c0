"""The functions of `traceview`, by topic.

Each imports what it needs when it is called: `import traceview` alone loads neither numpy nor
anything larger.
"""
