//! Curves as SVG.

use std::{error::Error, path::Path};

use plotters::prelude::*;

/// A line of a chart.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// Curves over a number of CPUs, threads or processes.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The name of its file, without the ending.
    pub file: &'static str,
    /// What stands above it.
    pub title: String,
    /// What runs from left to right.
    pub across: &'static str,
    /// What runs upwards.
    pub up: &'static str,
    /// The curves.
    pub curves: Vec<Curve>,
}

const COLORS: [RGBColor; 6] = [
    RGBColor(0x1b, 0x6c, 0xa8),
    RGBColor(0xd1, 0x49, 0x5b),
    RGBColor(0x2e, 0x8b, 0x57),
    RGBColor(0xb0, 0x7d, 0x12),
    RGBColor(0x6a, 0x4c, 0x93),
    RGBColor(0x55, 0x55, 0x55),
];

impl Chart {
    /// Its points as a Markdown table. All curves have the same places from left to right.
    pub fn table(&self) -> String {
        let mut text = format!("| {} |", self.across);
        let mut rule = String::from("|---|");
        for curve in &self.curves {
            text += &format!(" {} |", curve.name);
            rule += "---|";
        }
        let places = self.curves.first().map_or(0, |curve| curve.points.len());
        text = format!("{text}\n{rule}");
        for place in 0..places {
            text += &format!("\n| {} |", self.curves[0].points[place].0);
            for curve in &self.curves {
                text += &format!(" {:.2} |", curve.points[place].1);
            }
        }
        text
    }

    /// Draws it into `directory`; both axes are logarithmic.
    ///
    /// # Errors
    ///
    /// If the file can't be written, or there is nothing to draw.
    pub fn draw(&self, directory: &Path) -> Result<(), Box<dyn Error>> {
        let path = directory.join(format!("{}.svg", self.file));
        let all = || self.curves.iter().flat_map(|curve| curve.points.iter());
        let least = |part: fn(&(f64, f64)) -> f64| all().map(part).fold(f64::MAX, f64::min);
        let most = |part: fn(&(f64, f64)) -> f64| all().map(part).fold(0.0, f64::max);
        let (left, right) = (least(|point| point.0), most(|point| point.0));
        let (bottom, top) = (least(|point| point.1), most(|point| point.1));
        if left >= right || bottom <= 0.0 {
            return Err(format!("{}: nothing to draw", self.file).into());
        }
        let area = SVGBackend::new(&path, (720, 420)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 16))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(
                (left..right).log_scale(),
                (bottom * 0.8..top * 1.25).log_scale(),
            )?;
        chart
            .configure_mesh()
            .x_desc(self.across)
            .y_desc(self.up)
            .light_line_style(WHITE)
            .draw()?;
        for (curve, color) in self.curves.iter().zip(COLORS.iter().cycle()) {
            let line = LineSeries::new(curve.points.iter().copied(), color.stroke_width(2));
            chart
                .draw_series(line)?
                .label(&curve.name)
                .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE)
            .border_style(RGBColor(0xcc, 0xcc, 0xcc))
            .draw()?;
        area.present()?;
        Ok(())
    }
}
