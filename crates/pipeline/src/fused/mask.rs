//! Steps on masks by the plan of `fused`: a run of geometry is one resampling to the nearest pixel.

use super::warp::Warp;
use crate::mask::Mask;
use crate::per_op;
use crate::step::Step;

/// Performs the steps on a mask. Colours do not interrupt a run of geometry here, so a mask is resampled once but for
/// changes of perspective and borders that show the image, which are performed by the code of `per-op`.
pub(crate) fn apply_all_to_mask(steps: &[Step], mut mask: Mask) -> Mask {
    let mut run: Option<Warp> = None;
    for step in steps {
        if Warp::takes(step) {
            if let Some(warp) = run.take_if(|warp| !warp.has_room_for(step)) {
                mask = warp.nearest(&mask);
            }
            run.get_or_insert_with(|| Warp::new(mask.width, mask.height))
                .push(step);
        } else if matches!(step, Step::Perspective(_) | Step::Pad { .. }) {
            if let Some(warp) = run.take() {
                mask = warp.nearest(&mask);
            }
            mask = per_op::apply_to_mask(step, mask);
        }
    }
    match run {
        Some(warp) => warp.nearest(&mask),
        None => mask,
    }
}
