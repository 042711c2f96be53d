"""Record, replay and compare scheduling: what happened, exactly as it happened, without the model.

recorder.py  attached to a core, writes down what goes into it
trace.py     the recording, and its file
replay.py    plays it through the very same core, bit for bit
playback.py  the snapshots of a replay, to be looked at like a running engine
compare.py   the same arrivals under both policies
"""
