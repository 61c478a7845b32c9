"""Give grades back where the work came from: ``sheet`` is a table as a platform exported it,
``moodle``, ``canvas``, ``blackboard`` and ``brightspace`` know each platform's columns and file
names, ``people`` whose line is whose, ``command`` fills the table and packs the feedback.
"""
