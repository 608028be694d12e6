//! OtherPrograms: other programs use the cores besides the run.
//!
//! A sample is shared if other programs, the kernel and the hypervisor used more than `others_threshold`
//! percent of the machine's cores. The rule fires if more than `threshold` percent of the samples are shared.
//! Whether or not the run could have used those cores, its measurements depend on the other programs too. A
//! recording that does not tell the two apart, as SageMaker Debugger's, is not judged.

use serde_json::json;
use stokehold_profile::{Series, dimension};

use crate::rules::case::Case;
use crate::rules::parameters::{PATIENCE, Parameter, Range};
use crate::rules::share::Share;
use crate::rules::{Evidence, Finding, Rule};

pub(super) const RULE: Rule = Rule {
    name: "OtherPrograms",
    detects: "other programs that use the cores next to the run",
    parameters: &[
        Parameter {
            name: "threshold",
            meaning: "share of the samples that are shared, percent; fires above",
            range: Range::Percent,
            defaults: [20.0; 3],
        },
        Parameter {
            name: "others_threshold",
            meaning: "share of the cores that other programs took, percent; shared above",
            range: Range::Percent,
            defaults: [25.0; 3],
        },
        PATIENCE,
    ],
    judge,
};

fn judge(case: &Case) -> Finding {
    let mut finding = Finding {
        judged: false,
        ..case.finding()
    };
    let (mut sentences, limit) = (Vec::new(), case.number("others_threshold"));
    let belongs = |series: &Series| series.dimension == dimension::OTHERS_CPU;
    for node in case.nodes() {
        let Some(used) = node.core_use() else { continue };
        let beyond = |value: f32| f64::from(value) > limit * used.cores as f64;
        let (Some(share), Some(run), Some(others)) = (
            Share::of(node, belongs, beyond),
            node.mean(used.run),
            node.mean(used.others),
        ) else {
            continue;
        };
        let judged = share.snapshots.len() as u64 > case.count("patience");
        finding.judged |= judged;
        let (cores, run, others) = (used.cores, run / 100.0, others / 100.0);
        finding.triggered |= share.add_to(&mut finding, case);
        finding.details[&node.name] =
            json!({"cores": cores, "run": run, "others": others, "share": share.percent()});
        let evidence = share.evidence(belongs, beyond).into_iter();
        finding.evidence.extend(evidence.map(|one| Evidence {
            what: "other programs".to_owned(),
            ..one
        }));
        let mut sentence = format!(
            "On {}, other programs took {others:.1} of {cores} cores on average, and the run {run:.1}; in {} of {} \
             samples ({:.1} %) the others took more than {limit} % of the cores.",
            node.name,
            share.count,
            share.snapshots.len(),
            share.percent(),
        );
        if !judged {
            sentence += &format!(" Not judged before more than {} samples.", case.count("patience"));
        }
        sentences.push(sentence);
    }
    if sentences.is_empty() {
        return case
            .missing("the recording does not tell the run's use of the cores from that of other programs");
    }
    finding.summary = sentences.join(" ");
    if finding.triggered {
        finding.recommendation =
            "Run it alone before timing it, or give it cores of its own. Where its own use of the cores is small, more \
             of them do not help."
                .to_owned();
    }
    finding
}
