"""The gallery in reports/: its cases, and how their pages are made from recordings.

It lives here, not in reports/, so that a case's folder holds what a reader opens: the page, its
picture and the recording.
"""
