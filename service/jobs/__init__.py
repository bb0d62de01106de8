"""Jobs: what is asked for, whether it can be, and the processes that do it and outlive the server."""
