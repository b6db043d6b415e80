"""Durable batch jobs: a book comes in on a JetStream work queue, and finished audio files go out."""
