import 'uplot/dist/uPlot.min.css';
import './style/tokens.css';
import './style/frame.css';
import './style/parts.css';
import './style/jobs.css';
import './style/job.css';
import './style/charts.css';
import './style/forms.css';
import { render } from 'preact';
import { App } from './app';

const root = document.getElementById('app');
if (root) render(<App />, root);
