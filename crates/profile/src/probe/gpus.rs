//! GPUs through NVML, NVIDIA's management library, if it is installed.
//!
//! Its calls may take long (the first one seconds, and one to a device that fell off the bus forever), so a
//! separate thread makes them. The sampler sends a request at the start of a tick and takes the answer at its
//! end. A late answer is dropped: the tick has a gap.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, PcieUtilCounter, TemperatureSensor};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::{NVML_FI_DEV_PCIE_COUNT_RX_BYTES, NVML_FI_DEV_PCIE_COUNT_TX_BYTES};
use nvml_wrapper::{Device, Nvml};

use super::Board;
use crate::dimension;
use crate::kernel::rate;
use crate::system::SeriesId;

/// The values that are measured for a GPU.
const DIMENSIONS: [&str; 13] = [
    dimension::GPU,
    dimension::GPU_MEMORY,
    dimension::GPU_MEMORY_BYTES,
    dimension::GPU_POWER,
    dimension::GPU_CLOCK,
    dimension::GPU_TEMPERATURE,
    dimension::GPU_PCIE_RECEIVED,
    dimension::GPU_PCIE_SENT,
    dimension::GPU_ENCODER,
    dimension::GPU_DECODER,
    dimension::GPU_JPEG,
    dimension::GPU_THERMAL_THROTTLE,
    dimension::GPU_POWER_THROTTLE,
];

/// The values of a GPU; NaN for those it does not have.
type Values = [f64; DIMENSIONS.len()];

/// The longest time that the sampler waits for an answer.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long NVML takes to measure PCIe throughput, per GPU and direction, if it has no counters.
const MEASURING_PCIE: Duration = Duration::from_millis(20);

/// The sampler's side: sends requests to the thread that calls NVML.
pub(crate) struct Gpus {
    desk: Arc<Desk>,
    patience: Duration,
    asked: u64,
    series: Vec<[SeriesId; DIMENSIONS.len()]>,
    /// Whether the note was taken.
    noted: bool,
}

/// Shared between the sampler and the thread.
#[derive(Default)]
struct Desk {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The number of the latest request; `None` to end the thread.
    question: Option<u64>,
    /// The number of the last request that was answered.
    answered: u64,
    values: Vec<Values>,
    /// Whether the library is loaded.
    ready: bool,
    /// A note for the recording: why there is no library.
    note: Option<String>,
}

impl Gpus {
    /// Starts a thread that loads the library; the caller does not wait.
    pub fn open(library: &Path, interval: Duration) -> Option<Self> {
        let desk = Arc::new(Desk::default());
        desk.lock().question = Some(0);
        let (library, theirs) = (library.to_owned(), Arc::clone(&desk));
        std::thread::Builder::new()
            .name("sample-gpus".to_owned())
            .spawn(move || serve(&library, interval, &theirs))
            .ok()?;
        Some(Self {
            desk,
            patience: PATIENCE.min(interval / 2),
            asked: 0,
            series: Vec::new(),
            noted: false,
        })
    }

    /// Requests the values of this tick.
    pub fn ask(&mut self) {
        self.asked += 1;
        self.desk.lock().question = Some(self.asked);
        self.desk.changed.notify_all();
    }

    /// Takes the answer. Returns a note, if there is one.
    pub fn take(&mut self, board: &mut Board) -> Option<String> {
        let state = self.desk.lock();
        // If the previous request was not answered either, do not wait.
        let waiting = |state: &mut State| state.ready && state.answered + 1 == self.asked;
        let mut state = match self
            .desk
            .changed
            .wait_timeout_while(state, self.patience, waiting)
        {
            Ok((state, _)) => state,
            Err(poisoned) => poisoned.into_inner().0,
        };
        if state.ready && state.answered == self.asked {
            for (gpu, values) in state.values.iter().enumerate() {
                if self.series.len() == gpu {
                    let name = format!("gpu{gpu}");
                    self.series
                        .push(DIMENSIONS.map(|dimension| board.add("gpu", &name, dimension)));
                }
                for (place, value) in self.series[gpu].iter().zip(values) {
                    board.set(*place, *value);
                }
            }
        }
        let note = state.note.take();
        self.noted |= note.is_some();
        note
    }

    /// Waits at most 1 s for the library, which a short recording on a busy machine may outrun. Returns the note
    /// that no tick has taken, if there is one.
    pub fn finish(&mut self) -> Option<String> {
        let noted = self.noted;
        let loading = |state: &mut State| !noted && !state.ready && state.note.is_none();
        let state = self.desk.lock();
        match self
            .desk
            .changed
            .wait_timeout_while(state, Duration::from_secs(1), loading)
        {
            Ok((mut state, _)) => state.note.take(),
            Err(poisoned) => poisoned.into_inner().0.note.take(),
        }
    }
}

impl Drop for Gpus {
    /// Ends the thread, without waiting for it: a call may never return.
    fn drop(&mut self) {
        self.desk.lock().question = None;
        self.desk.changed.notify_all();
    }
}

impl Desk {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers requests until there are no more.
fn serve(library: &Path, interval: Duration, desk: &Desk) {
    let nvml = Nvml::builder().lib_path(library.as_os_str()).init();
    let counted = nvml.and_then(|nvml| Ok((nvml.device_count()?, nvml)));
    let (count, nvml) = match counted {
        Ok(found) => found,
        Err(error) => {
            // Such a program cannot load a library, whether it is there or not.
            let why = match cfg!(target_feature = "crt-static") {
                true => "this static program cannot load NVML; use the one that the wheel has, or build one"
                    .to_owned(),
                false => format!("NVML is not there ({error})"),
            };
            desk.lock().note = Some(format!("GPUs are not recorded: {why}"));
            desk.changed.notify_all();
            return;
        }
    };
    let mut memories: Vec<Memory> = (0..count).map(|_| Memory::default()).collect();
    let mut values: Vec<Values> = vec![[f64::NAN; DIMENSIONS.len()]; count as usize];
    // Two directions per GPU, in at most a quarter of the interval.
    let measure_pcie = MEASURING_PCIE * 2 * count * 4 <= interval;
    desk.lock().ready = true;
    desk.changed.notify_all();
    let mut answered = 0;
    loop {
        let mut state = desk.lock();
        while state.question == Some(answered) {
            state = desk.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let Some(question) = state.question else { return };
        drop(state);
        for (index, (memory, values)) in memories.iter_mut().zip(&mut values).enumerate() {
            *values = match nvml.device_by_index(index as u32) {
                Ok(device) => look(&nvml, &device, memory, measure_pcie),
                Err(_) => [f64::NAN; DIMENSIONS.len()],
            };
        }
        answered = question;
        let mut state = desk.lock();
        state.values.clone_from(&values);
        state.answered = answered;
        if memories.iter().any(|memory| memory.pcie_unknown) && !measure_pcie {
            memories.iter_mut().for_each(|memory| memory.pcie_unknown = false);
            state.note = Some(
                "PCIe throughput is not recorded: the driver does not count bytes, and measuring takes longer than this \
                 interval allows"
                    .to_owned(),
            );
        }
        drop(state);
        desk.changed.notify_all();
    }
}

/// What is kept of a GPU from one tick to the next.
#[derive(Default)]
struct Memory {
    /// Bytes received and sent over PCIe, and when.
    pcie: Option<(Instant, u64, u64)>,
    /// Whether the driver was found not to count them; noted once.
    pcie_unknown: bool,
    pcie_asked: bool,
}

/// The values of a GPU in the order of [`DIMENSIONS`]; NaN for those it does not provide.
fn look(nvml: &Nvml, device: &Device<'_>, memory: &mut Memory, measure_pcie: bool) -> Values {
    const NONE: f64 = f64::NAN;
    let busy = device
        .utilization_rates()
        .map_or(NONE, |rates| f64::from(rates.gpu));
    let (used, share) = device.memory_info().map_or((NONE, NONE), |info| {
        (
            info.used as f64,
            100.0 * info.used as f64 / info.total.max(1) as f64,
        )
    });
    let power = device
        .power_usage()
        .map_or(NONE, |milliwatts| f64::from(milliwatts) / 1e3);
    let clock = device.clock_info(Clock::SM).map_or(NONE, f64::from);
    let temperature = device.temperature(TemperatureSensor::Gpu).map_or(NONE, f64::from);
    let encoder = device
        .encoder_utilization()
        .map_or(NONE, |engine| f64::from(engine.utilization));
    let decoder = device
        .decoder_utilization()
        .map_or(NONE, |engine| f64::from(engine.utilization));
    let (thermal, powered) = device.current_throttle_reasons().map_or((NONE, NONE), |reasons| {
        let any = |which| if reasons.intersects(which) { 100.0 } else { 0.0 };
        (
            any(ThrottleReasons::HW_THERMAL_SLOWDOWN | ThrottleReasons::SW_THERMAL_SLOWDOWN),
            any(ThrottleReasons::SW_POWER_CAP | ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN),
        )
    });
    let (received, sent) = pcie(device, memory, measure_pcie);
    [
        busy,
        share,
        used,
        power,
        clock,
        temperature,
        received,
        sent,
        encoder,
        decoder,
        jpeg(nvml, device).unwrap_or(NONE),
        thermal,
        powered,
    ]
}

/// Bytes per second received and sent over PCIe.
fn pcie(device: &Device<'_>, memory: &mut Memory, measure: bool) -> (f64, f64) {
    const NONE: (f64, f64) = (f64::NAN, f64::NAN);
    let now = Instant::now();
    match pcie_counters(device) {
        Some((received, sent)) => {
            let before = memory.pcie.replace((now, received, sent));
            before.map_or(NONE, |(then, before_received, before_sent)| {
                let seconds = (now - then).as_secs_f64();
                (
                    rate(before_received, received, seconds),
                    rate(before_sent, sent, seconds),
                )
            })
        }
        None if measure => {
            let kilobytes = |counter| {
                device
                    .pcie_throughput(counter)
                    .map_or(f64::NAN, |kb| f64::from(kb) * 1e3)
            };
            (
                kilobytes(PcieUtilCounter::Receive),
                kilobytes(PcieUtilCounter::Send),
            )
        }
        None => {
            memory.pcie_unknown |= !std::mem::replace(&mut memory.pcie_asked, true);
            NONE
        }
    }
}

/// Bytes received and sent since the driver was loaded; older drivers have no such counters.
fn pcie_counters(device: &Device<'_>) -> Option<(u64, u64)> {
    let ids = [NVML_FI_DEV_PCIE_COUNT_RX_BYTES, NVML_FI_DEV_PCIE_COUNT_TX_BYTES].map(FieldId);
    let mut values =
        device
            .field_values_for(&ids)
            .ok()?
            .into_iter()
            .map(|sample| match sample.ok()?.value.ok()? {
                SampleValue::U32(value) => Some(u64::from(value)),
                SampleValue::U64(value) => Some(value),
                _ => None,
            });
    Some((values.next()??, values.next()??))
}

/// Busy share of the JPEG engine, percent: the one call that the wrapper crate lacks.
fn jpeg(nvml: &Nvml, device: &Device<'_>) -> Option<f64> {
    let call = nvml.lib().nvmlDeviceGetJpgUtilization.as_ref().ok()?;
    let (mut utilization, mut period) = (0, 0);
    // SAFETY: the symbol is NVML's `nvmlReturn_t nvmlDeviceGetJpgUtilization(nvmlDevice_t device, unsigned int
    // *utilization, unsigned int *samplingPeriodUs)`; the handle is of this library, which is initialised as long as
    // `nvml` lives; both pointers are to integers of ours.
    let code = unsafe { call(device.handle(), &raw mut utilization, &raw mut period) };
    (code == 0).then_some(f64::from(utilization))
}
