"""Selection of the transport by the options: a broker, or the files of a data folder."""

from __future__ import annotations

from goqueue.spark.source.options import SourceOptions
from goqueue.spark.source.transports import BrokerTransport, Transport


def transport_for(options: SourceOptions) -> Transport:
    if options.path is None:
        assert options.brokers is not None
        return BrokerTransport(
            options.brokers, uncommitted=options.uncommitted, fail_on_data_loss=options.fail_on_data_loss
        )
    from goqueue.spark.source.file_transport import FileTransport

    return FileTransport(
        options.path, options.brokers, uncommitted=options.uncommitted, fail_on_data_loss=options.fail_on_data_loss
    )
