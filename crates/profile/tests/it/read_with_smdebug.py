"""What SageMaker Debugger's readers, heat map and histograms make of a recording, as JSON.

    read_with_smdebug.py FOLDER
"""

import contextlib
import json
import sys

END = 4_102_444_800_000_000  # 2100, in microseconds

with contextlib.redirect_stdout(sys.stderr):
    from smdebug.profiler.algorithm_metrics_reader import LocalAlgorithmMetricsReader
    from smdebug.profiler.analysis.notebook_utils import heatmap, metrics_histogram
    from smdebug.profiler.system_metrics_reader import LocalSystemMetricsReader

    # Everything but the notebook that the pictures appear in.
    heatmap.show = metrics_histogram.show = lambda *arguments, **options: None

    folder = sys.argv[1]
    system = LocalSystemMetricsReader(folder).get_events(0, END)
    framework = LocalAlgorithmMetricsReader(folder).get_events(0, END)
    heat = heatmap.Heatmap(LocalSystemMetricsReader(folder), endtime=END, select_dimensions=[".*"])
    histogram = metrics_histogram.MetricsHistogram(LocalSystemMetricsReader(folder))
    histogram.plot(endtime=END)

json.dump(
    {
        "system": [
            {
                "type": event.type,
                "name": event.name,
                "dimension": event.dimension,
                "value": event.value,
                "node": event.node_id,
                "time": event.timestamp,
            }
            for event in system
        ],
        "framework": [
            {
                "name": event.event_name,
                "phase": event.event_phase,
                "node": event.node_id,
                "start": event.start_time,
                "duration": event.duration,
                "args": event.event_args or {},
            }
            for event in framework
        ],
        "heat": {
            node: {
                dimension: {name: list(map(float, values)) for name, values in events.items()}
                for dimension, events in dimensions.items()
            }
            for node, dimensions in heat.system_metrics.items()
        },
        "rows": [list(map(float, row[0])) for row in heat.source.data["image"]],
        "metrics": list(heat.source.data["metric"]),
        "histograms": {
            dimension: {name: list(map(int, source.data["top"])) for name, source in sources.items()}
            for dimension, sources in histogram.sources.items()
        },
    },
    sys.stdout,
)
