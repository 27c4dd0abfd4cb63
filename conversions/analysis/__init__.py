"""Facts about functions that several passes need: which values share memory, and until when each is needed."""
