"""The paper's tables and figures from the data at hand, by the stages that everyone runs.

The harness lies in the service for what it does: it starts stages as processes and reads the JSON that they leave.
What a table runs is data (``tables``), so a table knows settings by name alone.
"""
