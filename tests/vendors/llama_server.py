"""`python llama_server.py MODEL PORT`: the real llama.cpp server on loopback, until it is ended."""

import signal
import sys

import xllamacpp

THREADS = 1  # it waits by spinning: a second one would take the core from others
CONTEXT_TOKENS = 8_192
SLOTS = 2  # answers at a time


def serve(model: str, port: int) -> None:
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {"tiny"}
    params.port = port
    params.n_ctx = CONTEXT_TOKENS * SLOTS
    params.n_parallel = SLOTS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = THREADS
    params.warmup = False
    params.use_jinja = True
    params.endpoint_slots = True
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    serve(sys.argv[1], int(sys.argv[2]))
