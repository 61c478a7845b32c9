"""The starter functions: they run, look simpler than the solution, and are worse.

Each has the name and the signature of the library's function, and the comment that somebody in
a hurry would write. Their source is what a learner finds in the lab's solution cell, so each
function needs nothing but what the lab imports (:data:`grader.exercises.IMPORTS`).
"""
